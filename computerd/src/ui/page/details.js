// The right side: a commit, what is not committed yet, a denial.

import * as api from './api.js';
import { changeList, loadFrom } from './changes.js';
import { errorBox, make } from './dom.js';
import { commitTitle, countBadges, denialCount, runText } from './timeline.js';
import { commandText, counted, momentText, pathKey, pathText, shortId, visible } from './text.js';

// Paths that come with their lines at once; those of others are asked for one by one.
const WITH_LINES = 40;
const MAX_PATHS = 3000;

/** The head of a page on the right side. */
export function head(title, ...more) {
  return make('header', { class: 'details-head' },
    make('button', { type: 'button', class: 'quiet back', dataset: { action: 'back' }, 'aria-label': 'Back', title: 'Back (Esc)', text: '←' }),
    make('h2', { tabindex: '-1', text: title }), ...more);
}

/** A list of names and values. */
export function facts(pairs) {
  return make('dl', { class: 'facts' }, pairs.filter(([, value]) => value)
    .flatMap(([name, value]) => [make('dt', { text: name }), make('dd', {}, value)]));
}

/** A time with its exact value. */
export function timeOf(time) {
  return make('time', { title: time, datetime: time, text: momentText(time) });
}

function processText(actor) {
  const { process } = actor;
  if (!process) return '';
  return process.command.length > 0 ? commandText(process.command) : visible(process.name || `process ${process.pid}`);
}

/** Who did it, in one line; the run only if it isn't the commit's. */
export function actorLine(actor, commit = {}) {
  const command = processText(actor);
  const ancestors = (actor.process?.ancestors ?? []).map((ancestor) => `${visible(ancestor.name)} (${ancestor.pid})`).join(' ← ');
  return make('span', { class: 'actor', title: ancestors ? `started by ${ancestors}` : '' },
    command ? make('code', { class: 'command', text: `$ ${command}` }) : null,
    make('span', { class: 'who', text: visible(actor.principal) }),
    actor.process ? make('span', { class: 'faint', text: `pid ${actor.process.pid}` }) : null,
    actor.run && (actor.run !== commit.run || actor.step !== commit.step) ? make('span', { class: 'run', text: runText(actor) }) : null,
    actor.container ? make('span', { class: 'faint', text: `container ${visible(actor.container).slice(0, 12)}` }) : null);
}

/** A commit with its changes. */
export async function commitPage(workspace, id, { head_commit, onFilter, onHistory, onCommit, onRun, onRollback, focus }) {
  const ask = (options) => api.show(workspace, { revision: id, options });
  // Where one content can't be read (it was purged), the others are asked for one by one.
  let shown = await ask({ text: true, limit: WITH_LINES }).catch(() => ask({ limit: WITH_LINES }));
  const { commit, diff } = shown;
  const total = diff.counts.added + diff.counts.modified + diff.counts.deleted + diff.counts.renamed;
  let entries = diff.entries;
  if (total > entries.length) {
    shown = await ask({ limit: MAX_PATHS });
    const known = new Set(entries.map((entry) => pathKey(entry.path)));
    entries = [...entries, ...shown.diff.entries.filter((entry) => !known.has(pathKey(entry.path)))];
  }
  const processes = (shown.processes ?? []).filter((changes) => changes.actor.process);
  const by_path = new Map();
  for (const { actor, paths } of processes) {
    for (const { path } of paths) by_path.set(pathKey(path), [...(by_path.get(pathKey(path)) ?? []), actor]);
  }
  const link = (parent) => make('button', { type: 'button', class: 'link', onclick: () => onCommit(parent), text: shortId(parent) });
  const filter = (name, value, text) => make('button', { type: 'button', class: 'link', title: 'Only these in the timeline', onclick: () => onFilter({ [name]: value }), text });
  const rest = commit.message.split('\n').slice(1).join('\n').trim();
  const page = [
    head(commitTitle(commit)),
    rest ? make('pre', { class: 'message', text: rest.split('\n').map(visible).join('\n') }) : null,
    facts([
      ['When', timeOf(commit.time)],
      ['Principal', filter('by', commit.author, visible(commit.author))],
      ['Kind', make('span', { class: `kind kind-${/^\w+$/.test(commit.kind) ? commit.kind : 'other'}`, text: visible(commit.kind) })],
      ['Run', commit.run ? make('button', { type: 'button', class: 'link', onclick: () => onRun(commit.run), text: runText(commit) }) : null],
      ['Conflicts', commit.has_conflicts ? make('span', { class: 'conflicts', text: 'some wait to be resolved: see `kura conflicts`' }) : null],
      ['Commit', make('code', { class: 'full-id', text: commit.id })],
      ['Made from', commit.parents.length > 0 ? make('span', {}, commit.parents.map(link)) : null],
      ['Names', commit.references.length > 0 ? commit.references.map((name) => make('span', { class: 'reference', text: visible(name) })) : null],
    ]),
    make('div', { class: 'buttons start' },
      commit.id === head_commit
        ? make('span', { class: 'note', text: 'The newest commit.' })
        : make('button', { type: 'button', dataset: { action: 'rollback' }, onclick: () => onRollback(commit), text: 'Roll back to this state …' })),
    processes.length > 0 ? commands(processes, commit) : null,
    make('h3', {}, total === 0 ? 'No path changed' : counted(total, 'changed path'), ' ', make('span', { class: 'counts' }, countBadges(diff.counts))),
    changeList(entries, {
      load: loadFrom(workspace, id), onHistory, focus,
      // Of one command only, the list above says it all.
      actors: (entry) => (processes.length > 1 ? fileActors(by_path.get(pathKey(entry.path)), commit) : null),
    }),
    entries.length < total ? make('p', { class: 'note', text: `… and ${counted(total - entries.length, 'more path')}; \`kura show\` lists all.` }) : null,
  ];
  return page.filter(Boolean);
}

function fileActors(actors, commit) {
  if (!actors) return null;
  return make('div', { class: 'file-actors' }, actors.map((actor) => actorLine(actor, commit)));
}

function commands(processes, commit) {
  return make('section', { class: 'commands', 'aria-label': 'Commands' }, make('h3', { text: counted(processes.length, 'command') }),
    make('ul', {}, processes.map(({ actor, paths }) => make('li', {}, actorLine(actor, commit),
      make('span', { class: 'faint', title: paths.slice(0, 50).map(({ path }) => pathText(path)).join('\n'), text: counted(paths.length, 'path') })))));
}

/** What is not committed yet on a branch. */
export async function livePage(workspace, branch, { onHistory }) {
  const options = { text: true, limit: WITH_LINES };
  const diff = await api.diff(workspace, { to: undefined, options });
  const total = diff.counts.added + diff.counts.modified + diff.counts.deleted + diff.counts.renamed;
  const load = async (entry) => {
    const found = await api.diff(workspace, { options: { text: true, paths: [entry.path] } });
    return found.entries.find((other) => pathKey(other.path) === pathKey(entry.path)) ?? entry;
  };
  return [
    head('Not committed yet'),
    facts([['Branch', visible(branch)]]),
    make('h3', {}, total === 0 ? 'No path changed' : counted(total, 'changed path'), ' ', make('span', { class: 'counts' }, countBadges(diff.counts))),
    changeList(diff.entries, { load, onHistory }),
    diff.entries.length < total ? make('p', { class: 'note', text: `… and ${counted(total - diff.entries.length, 'more path')}.` }) : null,
  ].filter(Boolean);
}

/** Something that was refused. */
export function denialPage(entry, { onFilter }) {
  return [
    head(`Denied: ${visible(entry.target)}`),
    facts([
      ['When', timeOf(entry.time)],
      ['Principal', make('button', { type: 'button', class: 'link', onclick: () => onFilter({ by: entry.principal }), text: visible(entry.principal) })],
      ['Tried', visible(entry.action)],
      ['On', make('span', { class: 'path', text: visible(entry.target) })],
      ['Times', String(denialCount(entry))],
      ...sourceFacts(entry.source),
      ['Audit entry', String(entry.sequence)],
      ['Hash', make('code', { class: 'full-id', text: entry.hash })],
    ]),
  ];
}

function sourceFacts(source) {
  if (source === undefined || source === null) return [];
  if (typeof source !== 'object') return [['From', visible(source)]];
  const { command, surface, ...rest } = source;
  const others = Object.entries(rest).filter(([, value]) => value !== null)
    .map(([name, value]) => `${visible(name)} ${visible(typeof value === 'object' ? JSON.stringify(value) : value)}`);
  return [
    ['From', visible(surface ?? '')],
    ['Command', Array.isArray(command) && command.length > 0 ? make('code', { class: 'command', text: `$ ${commandText(command)}` }) : null],
    ['Where', others.join(' · ')],
  ];
}

/** A page that says what went wrong. */
export function errorPage(error) {
  return [head('That did not work'), errorBox(error)];
}
