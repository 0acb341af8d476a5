// Makes elements. Text only ever becomes text: no markup is parsed anywhere in this page.

/**
 * An element. `properties` are attributes; those that begin with "on" are listeners, `class`,
 * `text`, `dataset` and `hidden` mean what they say. Children are elements, strings or nothing.
 */
export function make(name, properties = {}, ...children) {
  const element = document.createElement(name);
  for (const [key, value] of Object.entries(properties)) {
    if (value === undefined || value === null || value === false) continue;
    if (key.startsWith('on')) element.addEventListener(key.slice(2), value);
    else if (key === 'text') element.textContent = value;
    else if (key === 'dataset') Object.assign(element.dataset, value);
    else element.setAttribute(key, value === true ? '' : value);
  }
  element.append(...children.flat().filter((child) => child !== undefined && child !== null && child !== false));
  return element;
}

/** The element with this id. */
export function byId(id) {
  return document.getElementById(id);
}

/** Does something when nothing came for some milliseconds. */
export function debounced(milliseconds, work) {
  let timer = 0;
  return () => {
    clearTimeout(timer);
    timer = setTimeout(work, milliseconds);
  };
}

/** A message box for an error of the API. */
export function errorBox(error) {
  return make('div', { class: 'error', role: 'alert' },
    make('strong', { text: error.message }),
    error.hint ? make('p', { text: error.hint }) : null);
}
