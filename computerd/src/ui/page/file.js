// The history of one path, and who its lines come from.

import * as api from './api.js';
import { actorLine, head } from './details.js';
import { errorBox, make } from './dom.js';
import { commitTitle, runText } from './timeline.js';
import { clockText, contentText, dayText, momentText, pathText, shortId, visible, visibleLine } from './text.js';

const PAGE = 100;

/** The commits that changed a path. */
export async function filePage(workspace, path, { onCommit, onRestore }) {
  const list = make('ol', { class: 'history-list', 'aria-label': `Commits that changed ${pathText(path)}` });
  const more = make('button', { type: 'button', class: 'quiet', text: 'Older', hidden: true });
  let after;
  const load = async () => {
    const page = await api.log(workspace, { paths: [path], limit: PAGE, after });
    after = page.commits.at(-1)?.id;
    list.append(...page.commits.map((commit) => historyRow(commit, path, { onCommit, onRestore })));
    more.hidden = !page.has_more;
  };
  more.addEventListener('click', () => load().catch((error) => more.replaceWith(errorBox(error))));
  await load();
  return [
    head('History of a path'),
    make('p', { class: 'path big', text: pathText(path) }),
    list, more,
    make('section', { class: 'blame', 'aria-label': 'Lines' }, await blamePart(workspace, path, onCommit)),
  ];
}

function historyRow(commit, path, { onCommit, onRestore }) {
  const run = runText(commit);
  return make('li', {},
    make('button', { type: 'button', class: 'history-row', dataset: { file: commit.id }, onclick: () => onCommit(commit.id, path) },
      make('span', { class: 'line' },
        make('span', { class: 'title', text: commitTitle(commit) }),
        make('time', { title: `${momentText(commit.time)}\n${commit.time}`, text: `${dayText(commit.time)}, ${clockText(commit.time)}` })),
      make('span', { class: 'meta' },
        make('span', { class: 'who', text: visible(commit.author) }), make('span', { class: 'kind', text: visible(commit.kind) }),
        run ? make('span', { class: 'run', text: run }) : null, make('code', { class: 'id', text: shortId(commit.id) }))),
    make('button', { type: 'button', class: 'quiet', title: 'Shows first what would change', onclick: () => onRestore(commit, path), text: 'Bring back …' }));
}

async function blamePart(workspace, path, onCommit) {
  let blame;
  try {
    blame = await api.blame(workspace, { path, lines: true });
  } catch (error) {
    // A directory, a binary file, a path that is gone, or a daemon that can't: then there is none.
    if (['not_found', 'invalid_input', 'unsupported', 'permission_denied'].includes(error.kind)) return [];
    return [errorBox(error)];
  }
  const newest = make('p', { class: 'note' }, 'Last changed by ', blame.newest.actors.map((actor) => actorLine(actor)));
  if (blame.lines.length === 0) return [make('h3', { text: 'Last change' }), newest];
  let previous = -1;
  const lines = blame.lines.map(({ text, origin }, at) => {
    const { commit } = blame.origins[origin];
    const is_new = origin !== previous;
    previous = origin;
    const who = is_new
      ? make('button', { type: 'button', class: 'link', title: `${commitTitle(commit)}\n${momentText(commit.time)}`, onclick: () => onCommit(commit.id, path), text: `${shortId(commit.id)} ${visible(commit.author)}` })
      : null;
    return make('div', { class: `code ${is_new ? 'first' : ''}` }, make('span', { class: 'origin' }, who),
      make('span', { class: 'number', 'data-number': at + 1 }), make('span', { class: 'text', text: visibleLine(contentText(text)) }));
  });
  return [make('h3', { text: 'Lines and where they come from' }), newest, make('div', { class: 'hunks blame-lines' }, lines)];
}
