// What the trace says: every event applied once, so that any instant can be looked up.

const ACTION = Object.fromEntries(DATA.actions.map((name, i) => [name, i]));
const BACKWARD = PHASES.indexOf('backward'), RECOMPUTE = PHASES.indexOf('recompute');
const ACTIVATIONS = CATEGORIES.indexOf('activations'), RECOMPUTED = CATEGORIES.indexOf('recomputed');
const NEVER = Infinity;

function makeRun(raw, index) {
    const n = raw.events.kind.length, kind = raw.events.kind, ref = raw.events.ref;
    const nBlocks = raw.blocks.bytes.length;
    const run = {
        raw, index, n, kind, ref, nBlocks, name: raw.name,
        time: new Float64Array(n),              // ns since the first event
        allocated: new Float64Array(n), active: new Float64Array(n), reserved: new Float64Array(n),
        by: new Float64Array(n * N_CATEGORIES), // [event, category]
        born: new Float64Array(nBlocks).fill(NEVER), released: new Float64Array(nBlocks).fill(NEVER),
        freed: new Float64Array(nBlocks).fill(NEVER),
        moves: new Map(),                       // block: [[event, category], ...]
        phases: [],                             // {phase, from, to}: events
        steps: [],                              // nodes of backward: {event, end, owner, graph}
        units: [], start: 0,
    };
    applyEvents(run);
    for (let i = 0; i < n; i++) if (run.allocated[i] > run.allocated[run.peak]) run.peak = i;
    placeSteps(run);
    return run;
}

function applyEvents(run) {
    const { kind, ref, raw } = run, bytes = raw.blocks.bytes;
    const category = Uint8Array.from(raw.blocks.category), by = new Float64Array(N_CATEGORIES);
    let time = 0, allocated = 0, active = 0, reserved = 0;
    run.peak = 0;
    for (let i = 0; i < run.n; i++) {
        const r = ref[i];
        time += raw.events.dt[i];
        switch (kind[i]) {
        case ACTION.alloc:
            run.born[r] = i; allocated += bytes[r]; active += bytes[r]; by[category[r]] += bytes[r]; break;
        case ACTION.free_requested:
            run.released[r] = i; allocated -= bytes[r]; by[category[r]] -= bytes[r]; break;
        case ACTION.free_completed: run.freed[r] = i; active -= bytes[r]; break;
        case ACTION.segment_alloc: case ACTION.segment_map:
        case ACTION.segment_free: case ACTION.segment_unmap: reserved += r; break;
        case ACTION.category: if (r >= 0) moveCategory(run, i, Math.floor(r / N_CATEGORIES), r % N_CATEGORIES, category, by); break;
        case ACTION.phase: beginPhase(run, i, raw.owners[r][4]); break;
        case ACTION.node: run.steps.push({ event: i, end: NEVER, owner: r }); break;
        case ACTION.unit: if (run.units.length === 0) run.start = i; run.units.push(i); break;
        }
        run.time[i] = time; run.allocated[i] = allocated; run.active[i] = active; run.reserved[i] = reserved;
        run.by.set(by, i * N_CATEGORIES);
    }
    if (run.phases.length) run.phases[run.phases.length - 1].to = run.n - 1;
}

function moveCategory(run, event, block, to, category, by) {
    const from = category[block], bytes = run.raw.blocks.bytes[block];
    if (from === to) return;
    by[from] -= bytes; by[to] += bytes;
    category[block] = to;
    if (!run.moves.has(block)) run.moves.set(block, []);
    run.moves.get(block).push([event, to]);
}

function beginPhase(run, event, phase) {
    const last = run.phases[run.phases.length - 1];
    if (last) last.to = event;
    run.phases.push({ phase, from: event, to: event });
}

// A node's backward ends where the next begins, or with the backward itself.
function placeSteps(run) {
    const ends = run.phases.filter(p => p.phase !== BACKWARD && p.phase !== RECOMPUTE).map(p => p.from);
    run.steps.forEach((step, k) => {
        const next = k + 1 < run.steps.length ? run.steps[k + 1].event : run.n;
        const stop = ends.find(e => e > step.event);
        step.end = Math.min(next, stop === undefined ? run.n : stop) - 1;
        step.graph = 0;
        run.raw.graphs.forEach((g, i) => { if (g.event <= step.event) step.graph = i; });
    });
}

function categoryAt(run, block, event) {
    let category = run.raw.blocks.category[block];
    for (const [at, to] of run.moves.get(block) || []) if (at <= event) category = to;
    return category;
}

// Blocks that are allocated after `event`, oldest first.
function aliveAt(run, event) {
    const alive = [];
    for (let b = 0; b < run.nBlocks; b++) if (run.born[b] <= event && run.released[b] > event) alive.push(b);
    return alive;
}

function ownerOf(run, index) {
    const [op, scope, node, segment, phase, file, line] = run.raw.owners[index], s = run.raw.strings;
    return { op: s[op], scope: s[scope], node, segment, phase: PHASES[phase], file: s[file], line };
}

// The step of backward during which an event lies; -1: none.
function stepAt(run, event) {
    let low = 0, high = run.steps.length;
    while (low < high) {
        const mid = (low + high) >> 1;
        if (run.steps[mid].event <= event) low = mid + 1; else high = mid;
    }
    return low > 0 && event <= run.steps[low - 1].end ? low - 1 : -1;
}

const nameOf = o => (o.op || 'made') + (o.node ? ' #' + o.node : '') + (o.scope ? ' in ' + o.scope : '');

const RUNS = DATA.runs.map(makeRun);
