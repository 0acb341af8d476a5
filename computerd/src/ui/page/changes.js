// Changed paths, each with what differs and its lines.

import * as api from './api.js';
import { errorBox, make } from './dom.js';
import { contentText, counted, momentText, pathKey, pathText, sizeText, visible, visibleLine } from './text.js';

// Lines that are shown of one file before somebody asks for all.
const SHOWN_LINES = 600;
// Files with more changed lines begin folded.
const UNFOLDED_LINES = 150;
// Files that begin unfolded.
const UNFOLDED_FILES = 12;

const SIGNS = { added: ['A', 'added'], modified: ['M', 'changed'], deleted: ['D', 'deleted'], renamed: ['R', 'renamed'] };

function mode(state) {
  return state.mode.toString(8).padStart(4, '0');
}

/** What differs apart from lines, in words. */
export function aspectTexts(entry) {
  const { old, new: now } = entry;
  const texts = [];
  const differs = (aspect) => entry.aspects.includes(aspect);
  if (old && now) {
    if (differs('kind')) texts.push(`${old.kind} → ${now.kind}`);
    if (differs('mode') && old.mode !== now.mode) texts.push(`mode ${mode(old)} → ${mode(now)}`);
    if (differs('owner')) texts.push(`owner ${old.uid}:${old.gid} → ${now.uid}:${now.gid}`);
    if (differs('xattrs')) texts.push('extended attributes');
    if (differs('links')) texts.push('hard links');
    if (differs('content') && old.size_bytes !== now.size_bytes) texts.push(`${sizeText(old.size_bytes)} → ${sizeText(now.size_bytes)}`);
  } else {
    const state = now ?? old;
    if (state.kind !== 'file') texts.push(state.kind.replace('_', ' '));
    else texts.push(sizeText(state.size_bytes));
    if (now && state.kind === 'file' && (state.mode & 0o111)) texts.push(`mode ${mode(state)}`);
  }
  const target = now?.symlink_target ?? old?.symlink_target;
  if (target !== undefined) texts.push(`→ ${pathText(target)}`);
  if (entry.is_binary) texts.push('binary');
  return texts;
}

/** The letter of a change. */
export function changeSign(change) {
  const [letter, word] = SIGNS[change] ?? ['?', visible(change)];
  return make('span', { class: `sign ${change in SIGNS ? change : ''}`, title: word, 'aria-label': word, text: letter });
}

/** The name of a changed path, with the one before. */
export function changeName(entry) {
  if (entry.old_path === undefined) return make('span', { class: 'path', text: pathText(entry.path) });
  return make('span', { class: 'path' }, make('s', { text: pathText(entry.old_path) }), ' → ', pathText(entry.path));
}

/** The hunks of one file. */
export function hunks(text) {
  const lines = contentText(text).split('\n');
  if (lines.at(-1) === '') lines.pop();
  const box = make('div', { class: 'hunks', role: 'region', 'aria-label': 'Changed lines', tabindex: '-1' });
  let old = 0;
  let now = 0;
  const render = (line) => {
    const begin = /^@@ -(\d+)(?:,\d+)? \+(\d+)(?:,\d+)? @@(.*)$/.exec(line);
    const row = (kind, left, right, sign, content) => make('div', { class: `code ${kind}` },
      make('span', { class: 'number', 'data-number': left }), make('span', { class: 'number', 'data-number': right }),
      make('span', { class: 'mark', text: sign }), make('span', { class: 'text', text: visibleLine(content) }));
    if (begin) {
      old = Number(begin[1]);
      now = Number(begin[2]);
      return row('hunk', '', '', '', line);
    }
    const content = line.slice(1);
    if (line[0] === '+') return row('plus', '', String(now++), '+', content);
    if (line[0] === '-') return row('minus', String(old++), '', '−', content);
    if (line[0] === '\\') return row('hunk', '', '', '', line);
    return row('same', String(old++), String(now++), '', content);
  };
  box.append(...lines.slice(0, SHOWN_LINES).map(render));
  if (lines.length > SHOWN_LINES) {
    const more = make('button', {
      type: 'button', class: 'quiet', text: `Show ${counted(lines.length - SHOWN_LINES, 'more line')}`,
      onclick: () => more.replaceWith(...lines.slice(SHOWN_LINES).map(render)),
    });
    box.append(more);
  }
  return box;
}

/**
 * The list of changed paths. `load(entry)` gives an entry with its lines, for those that came
 * without; `actors(entry)` elements that say who; `onHistory` opens a path's history.
 */
export function changeList(entries, { load, actors, onHistory, focus }) {
  return make('ul', { class: 'changes', 'aria-label': 'Changed paths' },
    entries.map((entry, at) => changeItem(entry, { at, load, actors, onHistory, is_wanted: focus !== undefined && pathKey(entry.path) === focus })));
}

function changeItem(entry, { at, load, actors, onHistory, is_wanted }) {
  const body = make('div', { class: 'file-body' });
  const can_have_lines = (state) => !state || state.kind === 'file' || state.kind === 'symlink';
  const is_known = entry.text !== undefined || entry.is_binary || entry.inserted_lines !== undefined
    || !can_have_lines(entry.new) || !can_have_lines(entry.old);
  const lines = (entry.inserted_lines ?? 0) + (entry.deleted_lines ?? 0);
  let is_filled = false;
  const fill = async () => {
    if (is_filled) return;
    is_filled = true;
    try {
      const full = is_known ? entry : await load(entry);
      body.replaceChildren(...fileBody(full));
    } catch (error) {
      is_filled = false;
      body.replaceChildren(errorBox(error));
    }
  };
  const toggle = make('button', { type: 'button', class: 'file-toggle', 'aria-expanded': 'false', dataset: { file: pathKey(entry.path) } },
    changeSign(entry.change), changeName(entry),
    make('span', { class: 'aspects', text: aspectTexts(entry).join(' · ') }),
    make('span', { class: 'counts' },
      entry.inserted_lines ? make('span', { class: 'count added', text: `+${entry.inserted_lines}` }) : null,
      entry.deleted_lines ? make('span', { class: 'count deleted', text: `−${entry.deleted_lines}` }) : null));
  const unfold = (should_show) => {
    toggle.setAttribute('aria-expanded', String(should_show));
    body.hidden = !should_show;
    if (should_show) fill();
  };
  toggle.addEventListener('click', () => unfold(body.hidden));
  unfold(is_wanted || (entry.text !== undefined && at < UNFOLDED_FILES && lines <= UNFOLDED_LINES));
  const history = onHistory && pathText(entry.path) !== '(root directory)'
    ? make('button', { type: 'button', class: 'quiet history', text: 'History', 'aria-label': `History of ${pathText(entry.path)}`, onclick: () => onHistory(entry.path) })
    : null;
  return make('li', { class: 'file' }, make('div', { class: 'file-head' }, toggle, history), actors?.(entry) ?? null, body);
}

function fileBody(entry) {
  if (entry.text !== undefined) return [hunks(entry.text)];
  if (entry.is_binary) return [make('p', { class: 'note', text: `Binary: ${sizes(entry)}.` })];
  if (entry.change === 'renamed' && entry.aspects.length === 0) return [make('p', { class: 'note', text: 'Only moved.' })];
  const aspects = entry.aspects.filter((aspect) => aspect !== 'content');
  if (aspects.length > 0 && !entry.aspects.includes('content')) return [make('p', { class: 'note', text: 'The content is the same.' }), times(entry)];
  return [make('p', { class: 'note', text: 'No lines to show.' }), times(entry)];
}

function sizes({ old, new: now }) {
  if (old && now) return `${sizeText(old.size_bytes)} → ${sizeText(now.size_bytes)}`;
  return sizeText((now ?? old).size_bytes);
}

function times({ old, new: now }) {
  if (!old || !now || old.mtime === now.mtime) return '';
  return make('p', { class: 'note', text: `Modification time ${momentText(old.mtime)} → ${momentText(now.mtime)}` });
}

/** Gives an entry of a commit with its lines. */
export function loadFrom(workspace, revision) {
  return async (entry) => {
    const paths = entry.old_path === undefined ? [entry.path] : [entry.path, entry.old_path];
    const shown = await api.show(workspace, { revision, options: { text: true, paths } });
    return shown.diff.entries.find((found) => pathKey(found.path) === pathKey(entry.path)) ?? entry;
  };
}
