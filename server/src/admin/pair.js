
// ---- the pair, where this server is a node of one

const ROLES = {
  active: "active",
  standby: "standby",
  taking_over: "taking over",
  handing_over: "handing over",
};
const STEPS = {
  suspected: "the peer is suspected",
  death_proven: "its death is proven",
  proof_void: "it lives after all",
  takeover_started: "the swap is sent",
  takeover_lost: "somebody else was first",
  became_active: "the gate is open",
  authority_lapsed: "authority has lapsed",
  stepped_down: "a larger term was seen",
  handover_started: "the gate is shut to hand over",
  handover_done: "the term is handed over",
  handover_failed: "the handover has failed",
  fenced_by_peer_call: "the old active says it is shut",
  fenced_by_command: "the fence command has succeeded",
  name_published: "the name is given to be published",
  witness_went_back: "the witness went back in time",
  state_not_durable: "the state file cannot be written",
};

let pairIsKnown = true;
let pairIsAsked = false;

/** A server without a pair has nothing at this path, and is not asked again until it comes back from being away. */
async function refreshPair() {
  if (!pairIsKnown || pairIsAsked) return;
  pairIsAsked = true;
  try {
    const answer = await fetch("api/pair", { signal: AbortSignal.timeout(PATIENCE_MS), cache: "no-store" });
    pairIsKnown = answer.status !== 404;
    showPair(answer.ok ? await answer.json() : null);
  } catch {
    // Whether the server is away is seen by what else it is asked.
  } finally {
    pairIsAsked = false;
  }
}

function forgetPair() {
  pairIsKnown = true;
}

function showPair(pair) {
  element("pair").hidden = pair === null;
  if (pair === null) return;
  pair.nodes.forEach((report, place) => {
    const view = element("nodes").children[place] ?? element("nodes").appendChild(fromTemplate("node-template"));
    showNode(view, report, report.node === pair.node);
  });
  showTimelines(pair.nodes);
}

function showNode(view, { node, address, status, error }, isThis) {
  const part = (name) => view.querySelector(`.${name}`);
  const role = status ? status.role : "away";
  view.dataset.role = role;
  setText(part("node-name"), `Node ${node}`);
  setText(part("role"), status ? ROLES[role] ?? role : "no answer");
  setText(part("where"), `${address}${isThis ? ", this one" : ""}${status?.version ? `, v${status.version}` : ""}`);
  setText(part("why"), status ? whyNot(status) : error);
  view.querySelector("dl").hidden = !status;
  view.querySelector("details").hidden = !status?.clock;
  if (!status) return;
  setText(part("term"), String(status.term));
  setText(part("floor"), `${status.floor}`);
  setText(part("floor-time"), tokenTime(status.floor));
  setText(part("authority"), authority(status));
  showWitness(part("witness"), status.witness);
  showName(part("service-name"), status.name);
  showClock(view, status.clock);
}

function whyNot({ role, reason, ready_for_handover: ready }) {
  if (role === "active") return "";
  return `${ready ? "Ready. " : ""}${reason ? `Takes over nothing now: ${reason}.` : ""}`;
}

function authority({ role, authority_left_ms: left, last_token: last }) {
  if (left === undefined) return role === "standby" ? "none, as it should be" : "none";
  return `${duration(left)} without a renewal${last ? `; last token ${last}` : ""}`;
}

/** A token begins with a unix second. */
function tokenTime(token) {
  return new Date(Math.floor(token / 2 ** 20) * 1000).toISOString().replace(".000Z", "Z");
}

function showWitness(view, witness) {
  view.dataset.state = witness?.problem ? "bad" : "good";
  if (!witness) return setText(view, "–");
  const heard = witness.answered_ms_ago === undefined ? "has not answered" : `answered ${duration(witness.answered_ms_ago)} ago`;
  const swap = witness.last_swap_us === undefined ? "" : `, last swap ${milliseconds(witness.last_swap_us)}`;
  setText(view, `${witness.kind}: ${heard}${swap}${witness.problem ? `; then: ${witness.problem}` : ""}`);
}

function showName(view, name) {
  view.dataset.state = name?.problem ? "bad" : name?.pending ? "doubtful" : "good";
  if (!name) return setText(view, "not kept by this pair");
  const addresses = name.addresses.join(", ") || "nobody yet";
  const pending = name.pending ? "; not everywhere yet" : "";
  setText(view, `${addresses} since term ${name.term}${pending}${name.problem ? `: ${name.problem}` : ""}`);
}

function showClock(view, clock) {
  const verdict = view.querySelector(".clock");
  verdict.dataset.state = { synced: "good", suspect: "bad" }[clock?.verdict] ?? "doubtful";
  setText(verdict, clock?.reason ?? "–");
  if (!clock) return;
  const compared = clock.servers.map(({ server, measured, problem }) => [server, measured, problem]);
  if (clock.peer) compared.push(["the peer", clock.peer]);
  const rows = compared.map(([name, measured, problem]) => {
    const said = measured ? `${offset(measured)}, ${duration(measured.age_ms)} ago` : "not heard";
    return `${name}: ${said}${problem ? `; ${problem}` : ""}`;
  });
  if (clock.kernel) {
    const { synchronised, max_error_us: error } = clock.kernel;
    rows.push(`the kernel: ${synchronised ? "" : "not "}synchronised, at most ${milliseconds(error)} wrong`);
  }
  if (clock.steps) rows.push(`set ${clock.steps === 1 ? "once" : `${clock.steps} times`} since the start`);
  showRows(view.querySelector("details ul"), rows);
}

function showRows(list, rows) {
  while (list.children.length > rows.length) list.lastElementChild.remove();
  rows.forEach((row, place) => {
    setText(list.children[place] ?? list.appendChild(document.createElement("li")), row);
  });
}

function offset({ offset_us: us, error_us: error }) {
  const side = us < 0 ? "ahead" : "behind";
  return `${milliseconds(Math.abs(us))} ${side} ± ${milliseconds(error)}`;
}

function milliseconds(us) {
  return us < 1e6 ? `${(us / 1000).toFixed(us < 1e4 ? 2 : 0)} ms` : `${(us / 1e6).toFixed(3)} s`;
}

// ---- what happened last

function showTimelines(nodes) {
  const happened = nodes.filter(({ status }) => status?.timeline?.length);
  const lastTerm = ({ status }) => Math.max(...status.timeline.map((line) => line.term ?? 0));
  happened.sort((one, other) => lastTerm(other) - lastTerm(one));
  const text = JSON.stringify(happened.map(({ node, status }) => [node, status.timeline]));
  const list = element("timelines");
  list.hidden = happened.length === 0;
  if (list.dataset.shown === text) return;
  list.dataset.shown = text;
  list.replaceChildren(...happened.map(({ node, status }) => timeline(node, status.timeline)));
}

function timeline(node, lines) {
  const view = fromTemplate("timeline-template");
  const end = Math.max(1, ...lines.map((line) => line.at_ms));
  view.querySelector("h3").textContent = headline(node, lines);
  view.querySelector(".began").textContent = `began ${lines[0].time}; ${duration(end)} in all`;
  let before = 0;
  for (const line of lines) {
    const row = fromTemplate("step-template");
    const from = Math.max(0, line.at_ms - (line.took_ms ?? line.at_ms - before));
    row.querySelector(".step").textContent = STEPS[line.step] ?? line.step.replaceAll("_", " ");
    row.querySelector(".detail").textContent = [line.basis, line.detail].filter(Boolean).join("; ");
    row.querySelector(".took").textContent = `${line.at_ms - from} ms`;
    row.querySelector(".at").textContent = `at ${line.at_ms} ms`;
    // What took no time is drawn all the same.
    const width = Math.max(0.4, (100 * (line.at_ms - from)) / end);
    const bar = row.querySelector("rect");
    bar.setAttribute("x", Math.min((100 * from) / end, 100 - width).toFixed(2));
    bar.setAttribute("width", width.toFixed(2));
    view.querySelector("ol").append(row);
    before = line.at_ms;
  }
  return view;
}

function headline(node, lines) {
  const began = lines.findLast((line) => line.step === "became_active");
  if (began) return `Node ${node} became active in term ${began.term}, by ${began.basis.replaceAll("_", " ")}`;
  const ended = lines.findLast((line) => ["handover_done", "authority_lapsed", "stepped_down"].includes(line.step));
  return `Node ${node}: ${STEPS[ended?.step] ?? "what happened last"}`;
}
