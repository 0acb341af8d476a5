// Asks the daemon. The token of the link is exchanged for a cookie and a key; the key stays in
// this window and goes with every request.

const KEY = 'kura-key';

/** An error of the API: `kind`, `message`, `hint`. */
export class ApiError extends Error {
  constructor(status, body) {
    super(body.message ?? `the daemon answered with ${status}`);
    this.status = status;
    this.kind = body.kind ?? 'internal';
    this.hint = body.hint;
  }
}

async function send(method, path, body) {
  const headers = { 'x-kura-page': sessionStorage.getItem(KEY) ?? '' };
  if (body !== undefined) headers['content-type'] = 'application/json';
  let answer;
  try {
    answer = await fetch(path, {
      method, headers, body: body === undefined ? undefined : JSON.stringify(body), cache: 'no-store',
    });
  } catch {
    throw new ApiError(0, {
      kind: 'unavailable',
      message: 'the daemon does not answer',
      hint: 'Is `kura ui` still running? Start it again and open the address that it prints.',
    });
  }
  const text = await answer.text();
  let value = {};
  try {
    value = JSON.parse(text);
  } catch {
    // An answer that is no JSON has no message.
  }
  if (!answer.ok) throw new ApiError(answer.status, value);
  return value;
}

/** Lets this window in, by the link's token or as one that was let in before. */
export async function enter() {
  const token = new URLSearchParams(location.hash.slice(1)).get('token');
  if (!token) return send('GET', '/session');
  // Before anything else: nobody shall read it over a shoulder or find it in the history.
  history.replaceState(null, '', '/');
  const session = await send('POST', '/session', { token });
  sessionStorage.setItem(KEY, session.key);
  return session;
}

function workspaceRoute(workspace, verb) {
  return `/v1/workspaces/${encodeURIComponent(workspace)}${verb}`;
}

export const workspaces = () => send('GET', '/v1/workspaces');
export const status = (workspace) => send('GET', workspaceRoute(workspace, ''));
export const log = (workspace, query) => send('POST', workspaceRoute(workspace, '/log'), query);
export const show = (workspace, query) => send('POST', workspaceRoute(workspace, '/show'), query);
export const diff = (workspace, query) => send('POST', workspaceRoute(workspace, '/diff'), query);
export const blame = (workspace, query) => send('POST', workspaceRoute(workspace, '/blame'), query);
export const runs = (workspace, query) => send('POST', workspaceRoute(workspace, '/runs'), query);
export const rollback = (workspace, request) => send('POST', workspaceRoute(workspace, '/rollback'), request);
export const undo = (workspace, request) => send('POST', workspaceRoute(workspace, '/undo'), request);
export const audit = (query) => send('POST', '/v1/audit', query);
