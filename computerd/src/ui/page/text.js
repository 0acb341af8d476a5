// Text for people: names that may be anything, times, sizes.

// What would change how the text around it looks, or can't be seen: controls, and marks of
// direction or of no width.
const INVISIBLE = /[\u0000-\u001f\u007f-\u009f\u00ad\u061c\u200b-\u200f\u2028-\u202e\u2060-\u206f\ufeff\ufff9-\ufffb]/g;
const INVISIBLE_BUT_TAB = /[\u0000-\u0008\u000a-\u001f\u007f-\u009f\u00ad\u061c\u200b-\u200f\u2028-\u202e\u2060-\u206f\ufeff\ufff9-\ufffb]/g;

function escaped(character) {
  if (character === '\n') return '\\n';
  if (character === '\t') return '\\t';
  return `\\u{${character.codePointAt(0).toString(16)}}`;
}

/** One line of text in which nothing hides. */
export function visible(text) {
  return String(text).replace(INVISIBLE, escaped);
}

/** A line of a file in which nothing hides; tabs stay. */
export function visibleLine(text) {
  return text.replace(/\r$/, '␍').replace(INVISIBLE_BUT_TAB, escaped);
}

function bytesOf(hex) {
  return Uint8Array.from(hex.match(/../g) ?? [], (pair) => parseInt(pair, 16));
}

/** A path of the API (a string, or {bytes_hex} where it is not UTF-8) for people. */
export function pathText(path) {
  if (typeof path === 'string') return path === '' ? '(root directory)' : visible(path);
  const decoder = new TextDecoder('utf-8', { fatal: true });
  const bytes = bytesOf(path.bytes_hex);
  let text = '';
  for (let at = 0; at < bytes.length;) {
    let length = Math.min(4, bytes.length - at);
    for (; length > 0; length -= 1) {
      try {
        const piece = decoder.decode(bytes.subarray(at, at + length));
        text += visible(piece);
        break;
      } catch {
        // Shorter.
      }
    }
    if (length === 0) {
      text += `\\x${bytes[at].toString(16).padStart(2, '0')}`;
      length = 1;
    }
    at += length;
  }
  return text;
}

/** Content of the API (like a path) as text; broken bytes become U+FFFD. */
export function contentText(content) {
  if (typeof content === 'string') return content;
  return new TextDecoder('utf-8').decode(bytesOf(content.bytes_hex));
}

/** One string for each path, to compare and to put into the address. */
export function pathKey(path) {
  return typeof path === 'string' ? `t${path}` : `x${path.bytes_hex}`;
}

/** The path of a key. */
export function pathOfKey(key) {
  return key[0] === 't' ? key.slice(1) : { bytes_hex: key.slice(1) };
}

/** The beginning of an id, as people read it. */
export function shortId(id) {
  return id.slice(0, 10);
}

const clock = new Intl.DateTimeFormat(undefined, { hour: '2-digit', minute: '2-digit' });
const day = new Intl.DateTimeFormat(undefined, { weekday: 'long', day: 'numeric', month: 'long', year: 'numeric' });
const moment = new Intl.DateTimeFormat(undefined, { dateStyle: 'medium', timeStyle: 'medium' });

/** Milliseconds since 1970 of a time of the API. */
export function milliseconds(time) {
  return Date.parse(time.replace(/(\.\d{3})\d*Z$/, '$1Z'));
}

/** The local hour and minute. */
export function clockText(time) {
  const at = milliseconds(time);
  return Number.isNaN(at) ? time : clock.format(at);
}

/** The local day. */
export function dayText(time) {
  const at = milliseconds(time);
  if (Number.isNaN(at)) return '';
  const days = Math.round((new Date().setHours(0, 0, 0, 0) - new Date(at).setHours(0, 0, 0, 0)) / 86_400_000);
  if (days === 0) return 'Today';
  if (days === 1) return 'Yesterday';
  return day.format(at);
}

/** The local day and time. */
export function momentText(time) {
  const at = milliseconds(time);
  return Number.isNaN(at) ? time : moment.format(at);
}

/** A size. */
export function sizeText(bytes) {
  const units = ['B', 'KiB', 'MiB', 'GiB', 'TiB'];
  let value = bytes;
  let unit = 0;
  while (value >= 1024 && unit < units.length - 1) {
    value /= 1024;
    unit += 1;
  }
  return `${unit === 0 ? value : value.toFixed(1)} ${units[unit]}`;
}

/** "1 path", "2 paths". */
export function counted(count, word) {
  return `${count.toLocaleString()} ${word}${count === 1 ? '' : 's'}`;
}

/** A command line as a shell would take it. */
export function commandText(words) {
  return words.map((word) => (/^[\w@%+=:,./-]+$/.test(word) ? word : `'${visible(word).replaceAll("'", "'\\''")}'`)).join(' ');
}
