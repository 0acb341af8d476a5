// The list of commits and denials, newest first. It is loaded in pages while it is scrolled, so
// that ten thousand commits cost no more than the part that was looked at.

import * as api from './api.js';
import { byId, debounced, errorBox, make } from './dom.js';
import { clockText, counted, dayText, milliseconds, momentText, shortId, visible } from './text.js';

const PAGE = 100;
// For the jump to the oldest.
const BIG_PAGE = 2000;
const DENIALS = 200;
// How far above the end more is loaded, in pixels.
const AHEAD = 800;

const TITLES = {
  init: 'Workspace made', import: 'Import', snapshot: 'Automatic commit', manual: 'Commit', rescue: 'Work kept before going back',
  rollback: 'Rollback', restore: 'Restore', undo: 'Undo', handoff: 'Handed over', merge: 'Merge', fork: 'Fork',
};

/** What stands for a commit in one line. */
export function commitTitle(commit) {
  const message = visible(commit.message.split('\n', 1)[0]);
  return message || TITLES[commit.kind] || visible(commit.kind);
}

/** The numbers of changed paths as elements. */
export function countBadges(changes) {
  if (!changes) return [];
  const parts = [['added', '+', 'added'], ['modified', '~', 'changed'], ['deleted', '−', 'deleted'], ['renamed', '→', 'renamed']];
  return parts.filter(([key]) => changes[key] > 0)
    .map(([key, sign, word]) => make('span', { class: `count ${key}`, title: `${counted(changes[key], 'path')} ${word}`, text: `${sign}${changes[key]}` }));
}

/** Run and step as text; nothing if there is no run. */
export function runText(holder) {
  if (!holder.run) return '';
  return `run ${visible(holder.run)}${(holder.step ?? '') === '' ? '' : ` · step ${holder.step}`}`;
}

export class Timeline {
  #list = byId('timeline');
  #scroller = byId('scroller');
  #end = byId('timeline-end');
  #newer = byId('newer');
  #fields = { path: byId('filter-path'), run: byId('filter-run'), by: byId('filter-by'), what: byId('filter-what') };
  #workspace = '';
  #status = null;
  #items = [];
  #active = -1;
  #opened = '';
  #generation = 0;
  #loading = null;
  #commits = null;
  #denials = null;
  #lastDay = '';
  #signature = '';
  #onOpen;

  /** `onOpen` is told what was chosen: {type, id}. */
  constructor(onOpen) {
    this.#onOpen = onOpen;
    this.#scroller.addEventListener('scroll', () => this.#fill());
    this.#list.addEventListener('click', (event) => this.#clicked(event));
    this.#newer.addEventListener('click', () => this.reload());
    const changed = debounced(250, () => this.reload());
    for (const field of Object.values(this.#fields)) field.addEventListener('input', changed);
    byId('filter').addEventListener('submit', (event) => {
      event.preventDefault();
      this.focus();
    });
    byId('filter').addEventListener('reset', () => setTimeout(() => this.reload()));
  }

  /** Shows another workspace. */
  async begin(workspace, status) {
    this.#workspace = workspace;
    this.#status = status;
    for (const id of ['known-runs', 'known-principals']) byId(id).replaceChildren();
    await this.reload();
  }

  /** Puts one value into the filter. */
  filter(values) {
    for (const [name, value] of Object.entries(values)) this.#fields[name].value = value;
    this.reload();
  }

  get #query() {
    const text = (name) => this.#fields[name].value.trim();
    return { path: text('path').replace(/^\/+|\/+$/g, ''), run: text('run'), by: text('by'), what: this.#fields.what.value };
  }

  /** Loads the list anew; what was chosen stays chosen if it is still there. */
  async reload() {
    this.#generation += 1;
    const query = this.#query;
    const is_filtered = query.path || query.run || query.by || query.what !== 'all';
    byId('filter-clear').hidden = !is_filtered;
    this.#newer.hidden = true;
    const kept = this.#items[this.#active]?.key;
    this.#loading = null;
    this.#commits = { after: undefined, ended: query.what === 'denials' };
    this.#denials = { before: undefined, ended: query.what === 'commits', waiting: [] };
    this.#lastDay = '';
    this.#signature = '';
    const before = this.#items;
    this.#items = [];
    this.#active = -1;
    const rows = is_filtered ? [] : this.#liveRows();
    await this.#load(PAGE, () => this.#list.replaceChildren(...rows));
    if (this.#active < 0) {
      const at = this.#items.findIndex((item) => item.key === kept);
      this.#setActive(at >= 0 ? at : Math.min(this.#items.length - 1, before.length && kept ? 0 : 0), false);
    }
    this.#fill();
  }

  /** Looks whether there is something new, and shows it unless somebody reads further down. */
  async refresh(status) {
    const uncommitted = JSON.stringify(status.uncommitted);
    const denials = await api.audit({ workspace: this.#workspace, outcome: 'denied', limit: 1 });
    const signature = `${status.head} ${uncommitted} ${denials.entries[0]?.sequence ?? 0}`;
    const is_first = this.#signature === '';
    if (this.#signature === signature) return;
    this.#status = status;
    if (is_first || this.#loading) {
      this.#signature = signature;
    } else if (this.#scroller.scrollTop < 60 && this.#items.length <= 2 * PAGE) {
      await this.reload();
      this.#signature = signature;
    } else {
      this.#newer.textContent = '↑ There is something new';
      this.#newer.hidden = false;
    }
  }

  /** Marks what is open. */
  setOpened(key) {
    this.#opened = key;
    this.#items.forEach((item, at) => {
      const is_opened = item.key === key;
      item.row.setAttribute('aria-selected', String(is_opened));
      if (is_opened) this.#setActive(at, false);
    });
  }

  /** Puts the keyboard here. */
  focus() {
    this.#list.focus({ preventScroll: true });
    this.#items[this.#active]?.row.scrollIntoView({ block: 'nearest' });
  }

  /** Moves the mark. */
  async move(by) {
    const wanted = this.#active + by;
    if (wanted >= this.#items.length) await this.#load(PAGE);
    this.#setActive(Math.max(0, Math.min(this.#items.length - 1, wanted)), true);
  }

  /** Moves the mark to the newest. */
  first() {
    this.#setActive(0, true);
  }

  /** Moves the mark to the oldest; loads all there is. */
  async last() {
    const generation = this.#generation;
    while (this.#has_more && generation === this.#generation) await this.#load(BIG_PAGE);
    this.#setActive(this.#items.length - 1, true);
  }

  /** Opens what is marked. */
  openActive() {
    const item = this.#items[this.#active];
    if (item) this.#onOpen(item.target);
  }

  get #has_more() {
    return !this.#commits.ended || !this.#denials.ended || this.#denials.waiting.length > 0;
  }

  #setActive(at, should_scroll) {
    this.#items[this.#active]?.row.classList.remove('active');
    this.#active = at;
    const row = this.#items[at]?.row;
    if (!row) {
      this.#list.removeAttribute('aria-activedescendant');
      return;
    }
    row.classList.add('active');
    this.#list.setAttribute('aria-activedescendant', row.id);
    if (should_scroll) row.scrollIntoView({ block: 'nearest' });
  }

  #clicked(event) {
    const row = event.target.closest('[role="option"]');
    const at = this.#items.findIndex((item) => item.row === row);
    if (at < 0) return;
    this.#setActive(at, false);
    this.openActive();
  }

  #is_near_end() {
    const { scrollTop, clientHeight, scrollHeight } = this.#scroller;
    return scrollTop + clientHeight + AHEAD > scrollHeight;
  }

  async #fill() {
    const generation = this.#generation;
    while (!this.#loading && generation === this.#generation && this.#has_more && this.#is_near_end()) {
      await this.#load(PAGE);
    }
  }

  /** Loads one page; calls at the same time share it. */
  #load(size, before) {
    if (!this.#has_more) {
      before?.();
      this.#tellEnd();
      return Promise.resolve();
    }
    this.#loading ??= this.#loadPage(size, this.#generation, before).finally(() => {
      this.#loading = null;
    });
    return this.#loading;
  }

  async #loadPage(size, generation, before) {
    this.#end.textContent = 'Loading …';
    const is_stale = () => generation !== this.#generation;
    let entries;
    try {
      entries = await this.#nextEntries(size, is_stale);
    } catch (error) {
      if (is_stale()) return;
      before?.();
      this.#commits.ended = true;
      this.#denials = { ended: true, waiting: [] };
      this.#end.replaceChildren(errorBox(error));
      return;
    }
    if (is_stale()) return;
    before?.();
    const rows = document.createDocumentFragment();
    for (const entry of entries) this.#append(entry, rows);
    this.#list.append(rows);
    this.#tellEnd();
  }

  #tellEnd() {
    if (this.#has_more) this.#end.textContent = 'Loading …';
    else if (this.#items.some((item) => item.target.type !== 'live')) this.#end.textContent = 'Nothing is older.';
    else this.#end.textContent = byId('filter-clear').hidden ? 'Nothing happened yet.' : 'Nothing fits the filter.';
  }

  /** The next commits with the denials between them, in order of time. */
  async #nextEntries(size, is_stale) {
    const commits = this.#commits.ended ? [] : await this.#nextCommits(size);
    if (is_stale()) return [];
    // Denials must be known down to the oldest commit of this page; all of them after the last one.
    const oldest = commits.length > 0 && !this.#commits.ended ? milliseconds(commits.at(-1).time) : -Infinity;
    const denials = this.#denials;
    while (!denials.ended && !is_stale()) {
      const last = denials.waiting.at(-1);
      if (last && milliseconds(last.time) < oldest) break;
      await this.#nextDenials(denials);
    }
    const entries = [];
    for (const commit of commits) {
      const time = milliseconds(commit.time);
      while (denials.waiting.length > 0 && milliseconds(denials.waiting[0].time) > time) {
        entries.push({ type: 'denial', value: denials.waiting.shift() });
      }
      entries.push({ type: 'commit', value: commit });
    }
    if (this.#commits.ended) {
      entries.push(...denials.waiting.splice(0).map((value) => ({ type: 'denial', value })));
    }
    return entries;
  }

  async #nextCommits(size) {
    const { path, run, by } = this.#query;
    const query = { limit: size, after: this.#commits.after, run: run || undefined, author: by || undefined, paths: path ? [path] : [] };
    let page;
    try {
      page = await api.log(this.#workspace, query);
    } catch (error) {
      // No commit has changed such a path.
      if (error.kind !== 'not_found' || !path) throw error;
      page = { commits: [], has_more: false };
    }
    this.#commits.after = page.commits.at(-1)?.id;
    this.#commits.ended = !page.has_more;
    return page.commits;
  }

  async #nextDenials(denials) {
    const { path, run, by } = this.#query;
    const query = { workspace: this.#workspace, outcome: 'denied', principal: by || undefined, before: denials.before, limit: DENIALS };
    const { entries } = await api.audit(query);
    denials.before = entries.at(-1)?.sequence;
    denials.ended = entries.length < DENIALS;
    denials.waiting.push(...entries.filter((entry) => (!path || entry.target.includes(path)) && (!run || entry.source?.run === run)));
  }

  #append({ type, value }, rows) {
    const day = dayText(value.time);
    if (day !== this.#lastDay) {
      this.#lastDay = day;
      rows.append(make('li', { class: 'day', role: 'presentation', text: day }));
    }
    const make_row = type === 'commit' ? () => this.#commitRow(value) : () => this.#denialRow(value);
    const id = type === 'commit' ? value.id : String(value.sequence);
    this.#add({ type, id, value }, make_row(), rows);
  }

  #add(target, row, rows) {
    const key = `${target.type} ${target.id}`;
    row.id = `row-${target.type}-${target.id}`;
    row.setAttribute('role', 'option');
    row.setAttribute('aria-selected', String(key === this.#opened));
    this.#items.push({ key, target, row });
    if (key === this.#opened) this.#setActive(this.#items.length - 1, false);
    rows.append(row);
  }

  #liveRows() {
    const rows = [];
    for (const { branch, changes } of this.#status?.uncommitted ?? []) {
      const is_default = branch === this.#status.default_branch;
      const row = make('li', { class: 'row kind-live' },
        make('span', { class: 'line' }, make('span', { class: 'title', text: 'Not committed yet' })),
        make('span', { class: 'meta' },
          is_default ? null : make('span', { text: `on ${visible(branch)}` }), countBadges(changes)));
      this.#add({ type: 'live', id: branch }, row, { append: (made) => rows.push(made) });
    }
    return rows;
  }

  #commitRow(commit) {
    remember('known-principals', commit.author);
    remember('known-runs', commit.run);
    const run = runText(commit);
    return make('li', { class: `row kind-${/^\w+$/.test(commit.kind) ? commit.kind : 'other'}` },
      make('span', { class: 'line' },
        make('span', { class: 'title', title: visible(commit.message), text: commitTitle(commit) }),
        make('time', { title: `${momentText(commit.time)}\n${commit.time}`, text: clockText(commit.time) })),
      make('span', { class: 'meta' },
        make('span', { class: 'who', text: visible(commit.author) }),
        make('span', { class: 'kind', text: visible(commit.kind) }),
        run ? make('span', { class: 'run', text: run }) : null,
        commit.has_conflicts ? make('span', { class: 'conflicts', text: 'conflicts' }) : null,
        commit.references.map((name) => make('span', { class: 'reference', text: visible(name) })),
        make('code', { class: 'id', text: shortId(commit.id) }),
        make('span', { class: 'counts' }, countBadges(commit.changes))));
  }

  #denialRow(entry) {
    remember('known-principals', entry.principal);
    return make('li', { class: 'row kind-denied' },
      make('span', { class: 'line' },
        make('span', { class: 'title', title: visible(entry.target), text: `Denied: ${visible(entry.target)}` }),
        make('time', { title: `${momentText(entry.time)}\n${entry.time}`, text: clockText(entry.time) })),
      make('span', { class: 'meta' },
        make('span', { class: 'who', text: visible(entry.principal) }),
        make('span', { class: 'kind', text: visible(entry.action) }),
        runText(entry.source ?? {}) ? make('span', { class: 'run', text: runText(entry.source) }) : null,
        denialCount(entry) > 1 ? make('span', { text: `${denialCount(entry)} times` }) : null));
  }
}

/** How often an aggregated denial happened. */
export function denialCount(entry) {
  try {
    return JSON.parse(entry.detail ?? '{}').count ?? 1;
  } catch {
    return 1;
  }
}

/** Offers a value in a field of the filter. */
function remember(list, value) {
  if (!value) return;
  const known = byId(list);
  if (known.childElementCount >= 200) return;
  for (const option of known.children) if (option.value === value) return;
  known.append(make('option', { value }));
}
