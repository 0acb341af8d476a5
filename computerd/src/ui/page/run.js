// One run: its steps with their commands, and taking out what it changed.

import * as api from './api.js';
import { facts, head, timeOf } from './details.js';
import { make } from './dom.js';
import { commitTitle } from './timeline.js';
import { clockText, commandText, counted, dayText, momentText, shortId, visible } from './text.js';

const LIMIT = 500;

/** A run with its steps and commits. */
export async function runPage(workspace, run, { onCommit, onFilter, onTakeOut }) {
  const [{ steps }, { commits, has_more }] = await Promise.all([
    api.runs(workspace, { run, limit: LIMIT }),
    api.log(workspace, { run, limit: LIMIT }),
  ]);
  const principals = [...new Set([...steps.map((step) => step.principal), ...commits.map((commit) => commit.author)])];
  const times = steps.map((step) => step.started).filter(Boolean).sort();
  return [
    head(`Run ${visible(run)}`),
    facts([
      ['Began', times.length > 0 ? timeOf(times[0]) : null],
      ['Principals', principals.map(visible).join(', ')],
      ['Steps', steps.length > 0 ? String(steps.length) : ''],
    ]),
    make('div', { class: 'buttons start' },
      make('button', { type: 'button', onclick: () => onFilter({ run }), text: 'Only this run in the timeline' }),
      make('button', { type: 'button', dataset: { action: 'take-out' }, onclick: () => onTakeOut(run), text: 'Take out its changes …' })),
    steps.some((step) => step.command.length > 0) ? make('section', { class: 'commands', 'aria-label': 'Steps' },
      make('h3', { text: 'Commands' }), make('ul', {}, steps.toReversed().map(stepRow))) : null,
    make('h3', { text: counted(commits.length, 'commit') + (has_more ? ' and more' : '') }),
    make('ol', { class: 'history-list', 'aria-label': 'Commits of the run' }, commits.map((commit) => make('li', {},
      make('button', { type: 'button', class: 'history-row', dataset: { file: commit.id }, onclick: () => onCommit(commit.id) },
        make('span', { class: 'line' }, make('span', { class: 'title', text: commitTitle(commit) }),
          make('time', { title: `${momentText(commit.time)}\n${commit.time}`, text: `${dayText(commit.time)}, ${clockText(commit.time)}` })),
        make('span', { class: 'meta' }, make('span', { class: 'who', text: visible(commit.author) }),
          commit.step === undefined ? null : make('span', { class: 'run', text: `step ${commit.step}` }),
          make('code', { class: 'id', text: shortId(commit.id) })))))),
  ].filter(Boolean);
}

function stepRow(step) {
  const code = step.exit_code;
  return make('li', {},
    make('span', { class: 'actor' },
      step.step === undefined ? null : make('span', { class: 'run', text: `step ${step.step}` }),
      step.command.length > 0 ? make('code', { class: 'command', text: `$ ${commandText(step.command)}` }) : make('span', { class: 'faint', text: 'not begun by `kura run`' }),
      code === undefined ? (step.started && !step.ended ? make('span', { class: 'faint', text: 'runs' }) : null)
        : make('span', { class: code === 0 ? 'count added' : 'count deleted', text: code === 0 ? 'ok' : `exit ${code}` })),
    make('span', { class: 'faint', text: counted(step.path_count, 'path') }));
}
