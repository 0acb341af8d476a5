// Dark or light: as the system has it, unless somebody chose.

import { byId } from './dom.js';

const CHOICES = { system: ['◐', 'as the system'], dark: ['☾', 'dark'], light: ['☀', 'light'] };
const KEY = 'kura-theme';

function apply(choice) {
  if (choice === 'system') delete document.documentElement.dataset.theme;
  else document.documentElement.dataset.theme = choice;
  const [sign, name] = CHOICES[choice];
  const button = byId('theme');
  button.textContent = sign;
  button.title = `Colours: ${name} (t)`;
  button.setAttribute('aria-label', `Colours: ${name}`);
}

function current() {
  const kept = localStorage.getItem(KEY);
  return kept in CHOICES ? kept : 'system';
}

/** Goes on to the next choice. */
export function nextTheme() {
  const names = Object.keys(CHOICES);
  const choice = names[(names.indexOf(current()) + 1) % names.length];
  localStorage.setItem(KEY, choice);
  apply(choice);
}

/** Applies what was chosen before. */
export function startTheme() {
  apply(current());
  byId('theme').addEventListener('click', nextTheme);
}
