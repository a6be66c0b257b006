
// Everything that comes from the server is put in place as text, never as markup: clients choose their lock names.

const POLL_MS = 1000;
const PATIENCE_MS = 10000;
const HISTORY = 120;
const SHOWN_LOCKS = 200;
const SHOWN_WAITERS = 50;

const FIGURES = [
  { title: "Locks held", value: (now) => now.locks_held },
  { title: "Waiters", value: (now) => now.waiters },
  { title: "Sessions", value: (now) => now.connections_active },
  { title: "Grants/s", total: (now) => now.acquires_total },
  { title: "Releases/s", total: (now) => Object.values(now.releases_total).reduce((sum, count) => sum + count, 0) },
  { title: "Cut short/s", total: ({ releases_total: by }) => by.expired + by.io_timeout + by.force },
  { title: "Heartbeats/s", total: (now) => now.heartbeats_total },
  { title: "Errors sent/s", total: (now) => now.protocol_errors_total },
];

const element = (id) => document.getElementById(id);
const figures = FIGURES.map((figure) => ({ ...figure, history: [], view: fromTemplate("figure-template") }));
const lockRows = new Map();

/** What the last answers were, and when they came, on the browser's own clock. */
let last = null;
let polling = null;
let timer = 0;
let outcomeTimer = 0;

start();

function start() {
  for (const figure of figures) {
    figure.view.querySelector(".title").textContent = figure.title;
    element("figures").append(figure.view);
  }
  element("filter").value = new URLSearchParams(location.hash.slice(1)).get("match") ?? "";
  element("filter").addEventListener("input", () => {
    const pattern = element("filter").value;
    history.replaceState(null, "", pattern ? `#${new URLSearchParams({ match: pattern })}` : "#");
    schedule(150);
  });
  document.addEventListener("visibilitychange", () => schedule(0));
  setInterval(tick, 250);
  schedule(0);
}

// ---- asking the server

function schedule(delay) {
  clearTimeout(timer);
  timer = setTimeout(poll, delay);
}

async function poll() {
  polling?.abort();
  polling = null;
  if (document.hidden) return;
  const own = (polling = new AbortController());
  const begun = performance.now();
  const patience = setTimeout(() => own.abort(), PATIENCE_MS);
  try {
    const pattern = element("filter").value;
    const query = pattern ? `?${new URLSearchParams({ match: pattern })}` : "";
    const [info, metrics, { locks }] = await Promise.all([
      ask("api/info", own.signal),
      ask("api/metrics", own.signal),
      ask(`api/locks${query}`, own.signal),
    ]);
    if (own !== polling) return;
    showAll({ info, metrics, locks, pattern, at: performance.now() });
    refreshPair();
  } catch (error) {
    if (own !== polling) return;
    showLost(error);
  } finally {
    clearTimeout(patience);
  }
  // A large answer is asked for less often.
  schedule(Math.max(POLL_MS, 4 * (performance.now() - begun)));
}

async function ask(path, signal) {
  const answer = await fetch(path, { signal, cache: "no-store" });
  if (!answer.ok) throw new Error(`the server answered ${answer.status}`);
  return answer.json();
}

async function change(method, path) {
  try {
    const answer = await fetch(path, { method, signal: AbortSignal.timeout(PATIENCE_MS) });
    if (answer.ok) return null;
    const { error } = await answer.json().catch(() => ({}));
    return error ?? `the server answered ${answer.status}`;
  } catch {
    return "no answer: whether it was done is unknown";
  }
}

// ---- showing

function showAll(now) {
  const wasLost = document.body.dataset.connection === "lost";
  const before = last;
  last = now;
  document.body.dataset.connection = "live";
  setText(element("connection"), "Connected");
  const restarted = before && now.info.uptime_ms < before.info.uptime_ms;
  if (wasLost) say(restarted ? "The server is back, restarted." : "The server is back.");
  showServer(now.info);
  showFigures(now, restarted || wasLost ? null : before);
  showLocks(now);
  tick();
}

function showLost(error) {
  forgetPair();
  const why = error.name === "TypeError" || error.name === "AbortError" ? "" : ` (${error.message})`;
  document.body.dataset.connection = "lost";
  const since = last ? "What is shown is old." : "";
  setText(element("connection"), `Connection lost, retrying${why}. ${since}`);
  for (const button of document.querySelectorAll("#locks button")) button.disabled = true;
  for (const figure of figures) remember(figure, null);
}

function showServer(info) {
  const tls = info.config.mtls ? "mutual TLS" : info.config.tls ? "TLS" : "plain TCP";
  const rules = info.config.acl_file ? ", access rules" : "";
  const text = `${info.version} at ${info.config.listen} (${tls}${rules}), up ${duration(info.uptime_ms)}`;
  setText(element("server"), text);
}

function showFigures(now, before) {
  for (const figure of figures) {
    if (figure.value) {
      remember(figure, figure.value(now.metrics));
    } else if (before) {
      const seconds = (now.at - before.at) / 1000;
      remember(figure, Math.max(0, figure.total(now.metrics) - figure.total(before.metrics)) / seconds);
    } else {
      remember(figure, null);
    }
  }
}

function remember(figure, value) {
  figure.history.push(value);
  if (figure.history.length > HISTORY) figure.history.shift();
  const peak = Math.max(...figure.history.map((value) => value ?? 0));
  setText(figure.view.querySelector(".value"), value === null ? "–" : quantity(value));
  setText(figure.view.querySelector(".peak"), `peak ${quantity(peak)}`);
  figure.view.querySelector("path").setAttribute("d", line(figure.history, peak));
}

/** Newest at the right edge; the line breaks where nothing is known. */
function line(history, peak) {
  let path = "";
  let pen = "M";
  history.forEach((value, index) => {
    if (value === null) {
      pen = "M";
      return;
    }
    const x = HISTORY - history.length + index;
    path += `${pen}${x} ${(29 - 28 * (value / (peak || 1))).toFixed(2)}`;
    pen = "L";
  });
  return path;
}

function showLocks({ locks, pattern }) {
  const shown = locks.slice(0, SHOWN_LOCKS);
  const names = new Set(shown.map((lock) => lock.name));
  for (const [name, row] of lockRows) {
    if (names.has(name)) continue;
    row.view.remove();
    lockRows.delete(name);
  }
  shown.forEach((lock, place) => {
    const row = lockRows.get(lock.name) ?? newLock(lock.name);
    putAt(element("locks"), row.view, place);
    showLock(row, lock);
  });
  const hidden = locks.length - shown.length;
  setText(element("count"), `${locks.length} of ${last.info.locks}${hidden ? `, the first ${SHOWN_LOCKS} shown: filter` : ""}`);
  element("none").hidden = locks.length > 0;
  setText(element("none"), pattern ? "No lock in use matches the filter." : "No lock is in use.");
}

function newLock(name) {
  const row = { view: fromTemplate("lock-template"), lock: null, waiters: new Map() };
  row.view.querySelector("h3").textContent = name;
  row.view.querySelector(".release").setAttribute("aria-label", `Release ${name}`);
  row.view.querySelector(".release").addEventListener("click", () => release(row.lock));
  row.view.querySelector("details").addEventListener("toggle", () => showQueue(row));
  lockRows.set(name, row);
  return row;
}

function showLock(row, lock) {
  row.lock = lock;
  const { view } = row;
  const { holder } = lock;
  setText(view.querySelector(".identity"), holder ? holder.identity || "no identity" : "nobody yet");
  setText(view.querySelector(".remote"), holder?.remote_addr ?? "");
  setText(view.querySelector(".lease"), holder ? duration(holder.lease_ms) : "–");
  setText(view.querySelector(".token"), String(holder?.token ?? "–"));
  view.querySelector(".release").disabled = !holder;
  view.querySelector("details").hidden = lock.waiters.length === 0;
  setText(view.querySelector("summary"), `${lock.waiters.length} waiting`);
  showQueue(row);
}

/** A closed queue costs nothing, however long it is. */
function showQueue(row) {
  const { view, lock, waiters } = row;
  const shown = view.querySelector("details").open ? lock.waiters.slice(0, SHOWN_WAITERS) : [];
  const addresses = new Set(shown.map((waiter) => waiter.remote_addr));
  for (const [address, item] of waiters) {
    if (addresses.has(address)) continue;
    item.view.remove();
    waiters.delete(address);
  }
  shown.forEach((waiter, place) => {
    const item = waiters.get(waiter.remote_addr) ?? newWaiter(row, waiter);
    item.since = waiter.queued_at;
    item.view.querySelector(".kick").disabled = false;
    putAt(view.querySelector("ol"), item.view, place);
  });
  const hidden = lock.waiters.length - shown.length;
  setText(view.querySelector(".more"), shown.length && hidden ? `and ${hidden} behind them` : "");
  tick();
}

function newWaiter(row, waiter) {
  const item = { view: fromTemplate("waiter-template"), since: waiter.queued_at };
  item.view.querySelector(".identity").textContent = waiter.identity || "no identity";
  item.view.querySelector(".remote").textContent = waiter.remote_addr;
  const kickButton = item.view.querySelector(".kick");
  kickButton.setAttribute("aria-label", `Kick ${waiter.remote_addr} out of the queue of ${row.lock.name}`);
  kickButton.addEventListener("click", () => kick(row.lock.name, waiter));
  row.waiters.set(waiter.remote_addr, item);
  return item;
}

/** Times go on between answers; while the server is away they stand, as everything else that is shown. */
function tick() {
  if (!last || document.body.dataset.connection !== "live") return;
  const serverNow = Date.parse(last.metrics.time) + (performance.now() - last.at);
  const ago = (time) => duration(Math.max(0, serverNow - Date.parse(time)));
  for (const { view, lock, waiters } of lockRows.values()) {
    setText(view.querySelector(".held"), lock.holder ? ago(lock.holder.since) : "–");
    for (const waiter of waiters.values()) setText(waiter.view.querySelector(".queued"), `waits ${ago(waiter.since)}`);
  }
}

// ---- changing

async function release(lock) {
  const { name, holder } = lock;
  const who = `${holder.identity || "The holder"} at ${holder.remote_addr}, token ${holder.token}, loses the lock.`;
  const next = lock.waiters.length ? "The head of the queue gets it at once." : "Nobody waits for it.";
  const agreed = await confirmed({
    title: `Release ${name}?`,
    what: `${who} ${next}`,
    consequence: "Its work may go on for a while: only a resource that checks tokens keeps it out.",
    action: "Release",
  });
  if (!agreed) return;
  // Only the holder that was shown: another may have come while the question stood.
  const problem = await change("POST", `api/locks/${encodeURIComponent(name)}/release?token=${holder.token}`);
  say(problem ? `${name} was not released: ${problem}.` : `${name} was released.`);
  schedule(0);
}

async function kick(name, waiter) {
  const agreed = await confirmed({
    title: `Kick a waiter of ${name}?`,
    what: `${waiter.identity || "The waiter"} at ${waiter.remote_addr} loses its place in the queue.`,
    consequence: "The others keep their order. A client that tries again goes to the tail.",
    action: "Kick",
  });
  if (!agreed) return;
  const address = encodeURIComponent(waiter.remote_addr);
  const problem = await change("DELETE", `api/locks/${encodeURIComponent(name)}/waiters/${address}`);
  say(problem ? `${waiter.remote_addr} was not kicked: ${problem}.` : `${waiter.remote_addr} was kicked.`);
  schedule(0);
}

function confirmed({ title, what, consequence, action }) {
  const dialog = element("confirm");
  setText(element("confirm-title"), title);
  setText(element("confirm-what"), what);
  setText(element("confirm-consequence"), consequence);
  setText(element("confirm-do"), action);
  dialog.returnValue = "cancel";
  dialog.showModal();
  return new Promise((resolve) => {
    dialog.addEventListener("close", () => resolve(dialog.returnValue === "do"), { once: true });
  });
}

// ---- small parts

function fromTemplate(id) {
  return element(id).content.firstElementChild.cloneNode(true);
}

/** Leaves alone what does not change: the focus, a selection, and what a screen reader has read out. */
function setText(target, text) {
  if (target.textContent !== text) target.textContent = text;
}

function putAt(parent, child, place) {
  if (parent.children[place] !== child) parent.insertBefore(child, parent.children[place] ?? null);
}

function say(text) {
  clearTimeout(outcomeTimer);
  setText(element("outcome"), text);
  outcomeTimer = setTimeout(() => setText(element("outcome"), ""), 8000);
}

function quantity(value) {
  const digits = value === 0 || value >= 10 || Number.isInteger(value) ? 0 : 1;
  return value.toLocaleString("en", { maximumFractionDigits: digits, minimumFractionDigits: digits });
}

function duration(ms) {
  if (ms < 1000) return `${Math.floor(ms)} ms`;
  const seconds = Math.floor(ms / 1000);
  const parts = [
    [Math.floor(seconds / 86400), "d"],
    [Math.floor(seconds / 3600) % 24, "h"],
    [Math.floor(seconds / 60) % 60, "min"],
    [seconds % 60, "s"],
  ];
  const first = parts.findIndex(([count]) => count > 0);
  return parts.slice(first, first + 2).filter(([count]) => count > 0).map(([count, unit]) => `${count} ${unit}`).join(" ");
}
