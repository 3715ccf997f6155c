// Asking the server: requests with their problems in words, and streams that come back by themselves.

/** An answer that is not a success. */
export class Problem extends Error {
  /** @param {number} status @param {string} text */
  constructor(status, text) {
    super(text);
    this.status = status;
  }
}

/** @param {Response} response */
async function problemOf(response) {
  let text = `The server answered ${response.status}.`;
  try {
    text = (await response.json()).error ?? text;
  } catch {
    // Not ours: a proxy's page, say.
  }
  return new Problem(response.status, text);
}

/**
 * @param {string} path Below the page's own address.
 * @param {Record<string, string | number | undefined>} [query]
 */
export function address(path, query) {
  const url = new URL(path, document.baseURI);
  for (const [name, value] of Object.entries(query ?? {})) {
    if (value !== undefined && value !== "") url.searchParams.set(name, String(value));
  }
  return url.href;
}

/**
 * @param {string} path
 * @param {Record<string, string | number | undefined>} [query]
 * @param {AbortSignal} [signal]
 * @returns {Promise<any>}
 */
export async function get(path, query, signal) {
  let response;
  try {
    response = await fetch(address(path, query), { headers: { Accept: "application/json" }, signal });
  } catch (error) {
    if (signal?.aborted) throw error;
    throw new Problem(0, "The server does not answer. Is remit serve still running?");
  }
  if (!response.ok) throw await problemOf(response);
  return response.json();
}

/**
 * @param {string} path
 * @param {object} body
 * @returns {Promise<any>}
 */
export async function post(path, body) {
  let response;
  try {
    response = await fetch(address(path), {
      method: "POST",
      headers: { "Content-Type": "application/json" },
      body: JSON.stringify(body),
    });
  } catch {
    throw new Problem(0, "The server does not answer. Is remit serve still running?");
  }
  const answer = response.status === 409 ? await response.clone().json() : null;
  if (answer && "done" in answer) return answer;
  if (!response.ok) throw await problemOf(response);
  return response.json();
}

const SILENT_MS = 25_000;
const HIDDEN_MS = 30_000;

/**
 * A stream that reconnects, from its last id. A hidden tab closes it: browsers allow six to a server.
 * @param {string} path
 * @param {{ heard: (kind: string, data: any) => void, state: (state: "live" | "behind" | "ended", problem?: Problem) => void }} reader
 * @returns {{ close: () => void }}
 */
export function follow(path, reader) {
  let last = "";
  let closed = false;
  let wait = 500;
  /** @type {AbortController | null} */
  let now = null;
  let hiddenTimer = 0;

  async function once() {
    const stop = (now = new AbortController());
    let silent = setTimeout(() => stop.abort(), SILENT_MS);
    try {
      const headers = /** @type {Record<string, string>} */ ({ Accept: "text/event-stream" });
      if (last) headers["Last-Event-ID"] = last;
      const response = await fetch(address(path), { headers, signal: stop.signal });
      if (!response.ok) throw await problemOf(response);
      const pieces = /** @type {ReadableStream<Uint8Array>} */ (response.body).pipeThrough(new TextDecoderStream()).getReader();
      let rest = "";
      for (;;) {
        const { done, value } = await pieces.read();
        if (done) return;
        clearTimeout(silent);
        silent = setTimeout(() => stop.abort(), SILENT_MS);
        wait = 500;
        const messages = (rest + value).split("\n\n");
        rest = messages.pop() ?? "";
        for (const one of messages) if (!closed) take(one);
      }
    } finally {
      clearTimeout(silent);
    }
  }

  /** @param {string} message */
  function take(message) {
    let kind = "";
    let id = "";
    let data = "";
    for (const line of message.split("\n")) {
      if (line.startsWith("event: ")) kind = line.slice(7);
      else if (line.startsWith("id: ")) id = line.slice(4);
      else if (line.startsWith("data: ")) data = line.slice(6);
    }
    reader.state("live");
    if (kind) reader.heard(kind, JSON.parse(data));
    if (id) last = id;
  }

  async function run() {
    while (!closed) {
      try {
        await once();
      } catch (error) {
        if (closed) return;
        if (error instanceof Problem && [401, 403, 404].includes(error.status)) {
          reader.state("ended", error);
          return;
        }
        reader.state("behind", error instanceof Problem ? error : undefined);
      }
      if (closed) return;
      reader.state("behind");
      await new Promise((go) => setTimeout(go, wait));
      wait = Math.min(wait * 2, 5000);
      while (document.hidden && !closed) await new Promise((go) => setTimeout(go, 500));
    }
  }

  function seen() {
    clearTimeout(hiddenTimer);
    if (document.hidden) hiddenTimer = setTimeout(() => now?.abort(), HIDDEN_MS);
  }

  document.addEventListener("visibilitychange", seen);
  void run();
  return {
    close() {
      closed = true;
      clearTimeout(hiddenTimer);
      document.removeEventListener("visibilitychange", seen);
      now?.abort();
    },
  };
}
