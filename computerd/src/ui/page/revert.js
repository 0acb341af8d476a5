// Going back: first what would change, then doing it, then a way back from it.

import * as api from './api.js';
import { aspectTexts, changeName, changeSign } from './changes.js';
import { byId, errorBox, make } from './dom.js';
import { counted, pathText, shortId, visible } from './text.js';

const SHOWN_CHANGES = 300;
const SHOWN_CONFLICTS = 20;
// How long the offer to undo stays, in milliseconds.
const TOAST = 60_000;

let toastTimer = 0;

/**
 * Shows the plan of going back and does it when told to. `request` is that of the API without
 * `dry_run`; `onDone` is called after it is done, and after it is undone.
 */
export async function askAndRevert(workspace, request, { title, words, onDone }) {
  const { act: actWord, done } = words ?? { act: 'Go back', done: 'Went back' };
  const dialog = byId('revert-dialog');
  const close = () => dialog.close();
  const act = make('button', { type: 'button', class: 'primary danger', disabled: true, dataset: { action: 'confirm' }, text: actWord });
  const cancel = make('button', { type: 'button', autofocus: true, onclick: close, text: 'Cancel' });
  const body = make('div', { class: 'plan', tabindex: '0', 'aria-label': 'What would change', 'aria-live': 'polite' }, make('p', { class: 'note', text: 'Looking what would change …' }));
  dialog.replaceChildren(make('h2', { id: 'revert-title', text: title }), body, make('div', { class: 'buttons' }, cancel, act));
  if (!dialog.open) dialog.showModal();
  cancel.focus();
  try {
    const { plan } = await api.rollback(workspace, { ...request, dry_run: true });
    body.replaceChildren(...planParts(plan));
    act.disabled = plan.change_count === 0 && !plan.is_recorded;
  } catch (error) {
    body.replaceChildren(errorBox(error));
    return;
  }
  act.addEventListener('click', async () => {
    act.disabled = true;
    act.textContent = `${actWord} …`;
    try {
      const result = await api.rollback(workspace, request);
      close();
      tellDone(workspace, result, onDone, done);
      onDone(result.commit);
    } catch (error) {
      act.textContent = actWord;
      body.prepend(errorBox(error));
    }
  });
}

function planParts(plan) {
  const changes = plan.changes.slice(0, SHOWN_CHANGES);
  const conflicts = plan.conflicts ?? [];
  const conflict_count = plan.conflict_count ?? 0;
  return [
    make('p', { class: 'summary' }, make('strong', { text: plan.change_count === 0 ? 'Nothing would change.' : `${counted(plan.change_count, 'path')} would change` }),
      ` on branch ${visible(plan.branch)}, by a new commit. The history stays.`),
    plan.uncommitted_count > 0
      ? make('p', { class: 'note', text: `${counted(plan.uncommitted_count, 'path')} with changes that are not committed: they are committed first, so that nothing is lost.` }) : null,
    plan.mounts.length > 0
      ? make('p', { class: 'note', text: `It is seen at once in ${plan.mounts.map(pathText).join(', ')}.` }) : null,
    conflict_count > 0
      ? make('div', { class: 'error' }, make('strong', { text: `${counted(conflict_count, 'conflict')} would be left to resolve` }),
        make('p', { text: 'Others changed the same since. Both versions are kept; `kura resolve` ends a conflict.' }),
        make('ul', {}, conflicts.slice(0, SHOWN_CONFLICTS).map(({ path, reason }) => make('li', {}, make('span', { class: 'path', text: pathText(path) }), make('span', { class: 'aspects', text: ` ${visible(reason)}` }))))) : null,
    make('ul', { class: 'plan-changes' }, changes.map((entry) => make('li', {}, changeSign(entry.change), changeName(entry),
      make('span', { class: 'aspects', text: aspectTexts(entry).join(' · ') })))),
    plan.change_count > changes.length ? make('p', { class: 'note', text: `… and ${counted(plan.change_count - changes.length, 'more path')}.` }) : null,
  ].filter(Boolean);
}

function tellDone(workspace, result, onDone, text) {
  const { operation, plan, commit } = result;
  const words = operation
    ? `${text}: ${counted(plan.change_count, 'path')} changed by commit ${shortId(commit ?? plan.head)}.`
    : 'Nothing had to change.';
  const parts = [make('span', { text: words })];
  if (operation) {
    const undo = make('button', { type: 'button', class: 'primary', dataset: { action: 'undo' }, title: operation.undo, text: text === 'Undone' ? 'Redo' : 'Undo' });
    undo.addEventListener('click', async () => {
      undo.disabled = true;
      try {
        const undone = await api.undo(workspace, { operation: operation.id });
        tellDone(workspace, undone, onDone, text === 'Undone' ? 'Redone' : 'Undone');
        onDone(undone.commit);
      } catch (error) {
        toast(errorBox(error), closer());
      }
    });
    parts.push(undo);
  }
  toast(...parts, closer());
  byId('toast').querySelector('[data-action="undo"]')?.focus();
}

function closer() {
  return make('button', { type: 'button', class: 'quiet', 'aria-label': 'Close', onclick: () => { byId('toast').hidden = true; }, text: '×' });
}

function toast(...parts) {
  const box = byId('toast');
  box.replaceChildren(...parts);
  box.hidden = false;
  clearTimeout(toastTimer);
  toastTimer = setTimeout(() => { box.hidden = true; }, TOAST);
}
