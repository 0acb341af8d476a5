// The page: what is open (it stands in the address, so that Back works), keys, and looking for news.

import * as api from './api.js';
import { commitPage, denialPage, errorPage, head, livePage } from './details.js';
import { byId, make } from './dom.js';
import { filePage } from './file.js';
import { runPage } from './run.js';
import { askAndRevert } from './revert.js';
import { counted, pathKey, pathOfKey, pathText, shortId, visible } from './text.js';
import { nextTheme, startTheme } from './theme.js';
import { Timeline } from './timeline.js';

// How often we look for news, in milliseconds.
const NEWS = 4000;

const panel = byId('details');
const panes = byId('panes');
const picker = byId('workspace');
let workspace = '';
let status = null;
let opened = '';
// Denials that were listed: they can't be asked for by number.
const denials = new Map();

const timeline = new Timeline((target) => {
  if (target.type === 'denial') denials.set(target.id, target.value);
  go(target.type, target.id);
});

function go(type, id, focus) {
  const parts = [workspace, type, id, focus].filter((part) => part !== undefined);
  const wanted = `#/${parts.map(encodeURIComponent).join('/')}`;
  if (location.hash === wanted) open(true);
  else location.hash = wanted;
}

function place() {
  return location.hash.replace(/^#\/?/, '').split('/').filter(Boolean).map((part) => {
    try {
      return decodeURIComponent(part);
    } catch {
      return part;
    }
  });
}

const handlers = {
  onFilter(values) {
    timeline.filter(values);
    close();
  },
  onHistory: (path) => go('file', pathKey(path)),
  onCommit: (id, path) => go('commit', id, path === undefined ? undefined : pathKey(path)),
  onRollback: (commit) => askAndRevert(workspace, { revision: commit.id }, {
    title: `Roll back to ${shortId(commit.id)}?`, onDone,
  }),
  onRun: (run) => go('run', run),
  onTakeOut: (run) => askAndRevert(workspace, { run }, {
    title: `Take out what run ${visible(run)} changed?`, words: { act: 'Take out', done: 'Taken out' }, onDone,
  }),
  onRestore: (commit, path) => askAndRevert(workspace, { revision: commit.id, paths: [path] }, {
    title: `Bring back ${pathText(path)} as of ${shortId(commit.id)}?`, onDone,
  }),
};

async function onDone() {
  await news();
  await timeline.reload();
  timeline.first();
  if (opened.startsWith('live') || opened.startsWith('commit')) open(false);
}

/** Shows what the address names. */
async function open(should_focus) {
  const [name, type, id, focus] = place();
  if (name !== undefined && name !== workspace && [...picker.options].some((option) => option.value === name)) {
    await choose(name);
  }
  if (type === undefined) {
    opened = '';
    panes.classList.remove('with-details');
    timeline.setOpened('');
    panel.replaceChildren(emptyPage());
    return;
  }
  const key = `${type} ${id}`;
  const is_other = opened !== key;
  opened = key;
  panes.classList.add('with-details');
  timeline.setOpened(key);
  if (is_other) {
    panel.setAttribute('aria-busy', 'true');
    panel.scrollTop = 0;
  }
  let page;
  try {
    page = await pageOf(type, id, focus);
  } catch (error) {
    page = errorPage(error);
  }
  if (opened !== key) return;
  panel.removeAttribute('aria-busy');
  panel.replaceChildren(...page);
  const wanted = focus && [...panel.querySelectorAll('[data-file]')].find((button) => button.dataset.file === focus);
  if (wanted) {
    wanted.scrollIntoView({ block: 'center' });
    wanted.focus({ preventScroll: true });
  } else if (should_focus) panel.querySelector('h2')?.focus({ preventScroll: true });
}

async function pageOf(type, id, focus) {
  if (type === 'commit') return commitPage(workspace, id, { ...handlers, head_commit: status.head, focus });
  if (type === 'live') return livePage(workspace, id, handlers);
  if (type === 'run') return runPage(workspace, id, handlers);
  if (type === 'file') return filePage(workspace, pathOfKey(id), handlers);
  if (denials.has(id)) return denialPage(denials.get(id), handlers);
  return [head('This denial is not listed'), make('p', { class: 'note', text: 'Choose it in the timeline.' })];
}

function emptyPage() {
  return make('div', { class: 'empty' }, make('p', { text: 'Choose a commit to see what it changed.' }),
    make('p', { class: 'faint' }, make('kbd', { text: 'j' }), ' ', make('kbd', { text: 'k' }), ' move, ', make('kbd', { text: 'Enter' }), ' opens, ', make('kbd', { text: '?' }), ' shows all keys'));
}

function close() {
  if (location.hash.replace(/^#\/?/, '') === encodeURIComponent(workspace)) return;
  location.hash = `#/${encodeURIComponent(workspace)}`;
  timeline.focus();
}

/** One step back: from a file to the commit where we were, from a commit to the timeline. */
function back() {
  const [, type, , focus] = place();
  if (type === 'file' || type === 'run' || focus !== undefined) history.back();
  else close();
}

async function choose(name) {
  workspace = name;
  picker.value = name;
  document.title = `${visible(name)} – Kura`;
  status = await api.status(name);
  tellStatus();
  await timeline.begin(name, status);
  await timeline.refresh(status);
}

function tellStatus() {
  const parts = [`branch ${visible(status.default_branch)}`];
  parts.push(status.mounts.length > 0 ? counted(status.mounts.length, 'mount') : 'not mounted');
  const conflicts = (status.conflicts ?? []).reduce((sum, branch) => sum + branch.count, 0);
  if (conflicts > 0) parts.push(counted(conflicts, 'conflict'));
  if (status.sizes.commit_count) parts.push(counted(status.sizes.commit_count, 'commit'));
  byId('state').classList.remove('lost');
  byId('state').textContent = parts.join(' · ');
}

async function news() {
  if (document.hidden || workspace === '') return;
  const asked = workspace;
  try {
    const found = await api.status(asked);
    if (asked !== workspace) return;
    status = found;
    tellStatus();
    await timeline.refresh(status);
  } catch (error) {
    byId('state').classList.add('lost');
    byId('state').textContent = visible(error.message);
  }
}

/** Moves between the parts of the right side. */
function moveInPanel(by) {
  const stops = [...panel.querySelectorAll('[data-file]')];
  if (stops.length === 0) return;
  const at = stops.findIndex((stop) => stop === document.activeElement || stop.closest('li')?.contains(document.activeElement));
  const next = stops[Math.max(0, Math.min(stops.length - 1, at + by))];
  next.focus();
  next.scrollIntoView({ block: 'nearest' });
}

const KEYS = {
  j: () => move(1), ArrowDown: () => move(1), k: () => move(-1), ArrowUp: () => move(-1),
  Home: () => inTimeline() && timeline.first(),
  End: () => inTimeline() && timeline.last(),
  Enter: () => inTimeline() && timeline.openActive(),
  Escape: () => back(),
  '/': () => byId('filter-path').select(),
  '?': () => byId('help-dialog').showModal(),
  t: () => nextTheme(),
  r: () => panel.querySelector('[data-action="rollback"]')?.click(),
  h: () => document.activeElement?.closest('.file')?.querySelector('.history')?.click(),
};

function inTimeline() {
  return !panel.contains(document.activeElement);
}

function move(by) {
  if (!inTimeline()) return moveInPanel(by);
  timeline.focus();
  return timeline.move(by);
}

document.addEventListener('keydown', (event) => {
  if (event.ctrlKey || event.altKey || event.metaKey || document.querySelector('dialog[open]')) return;
  const target = event.target;
  if (target.matches('input, select')) {
    if (event.key === 'Escape') {
      target.blur();
      timeline.focus();
    }
    return;
  }
  // A button does its own thing on Enter.
  if (event.key === 'Enter' && target.matches('button')) return;
  const action = KEYS[event.key];
  if (!action) return;
  event.preventDefault();
  action();
});

async function start() {
  startTheme();
  byId('help').addEventListener('click', KEYS['?']);
  panel.addEventListener('click', (event) => {
    if (event.target.closest('[data-action="back"]')) back();
  });
  let session;
  try {
    session = await api.enter();
    const { workspaces } = await api.workspaces();
    picker.replaceChildren(...workspaces.map(({ name }) => make('option', { value: name, text: visible(name) })));
    const names = workspaces.map(({ name }) => name);
    const wanted = [place()[0], session.workspace].find((name) => names.includes(name)) ?? names[0];
    if (wanted === undefined) {
      panel.replaceChildren(...[head('No workspace yet'), make('p', { class: 'note', text: '`kura init NAME` makes one.' })]);
      return;
    }
    await choose(wanted);
  } catch (error) {
    panes.classList.add('with-details');
    panel.replaceChildren(...errorPage(error));
    return;
  }
  window.addEventListener('hashchange', () => open(true));
  picker.addEventListener('change', () => {
    location.hash = `#/${encodeURIComponent(picker.value)}`;
  });
  await open(false);
  if (opened === '') timeline.focus();
  setInterval(news, NEWS);
  document.addEventListener('visibilitychange', news);
  document.body.dataset.ready = 'true';
}

start();
