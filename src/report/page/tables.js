// The peak in numbers, and what was alive at it.

const MAX_ROWS = 12; // of a table; the rest is one line

function numberRows() {
    const fragmentation = run => 1 - run.raw.peak_active_bytes / run.raw.peak_reserved_bytes;
    const rows = [
        ['peak allocated', (r, i) => bytesOf(r.allocated[r.peak], `runs.${i}.peak_allocated_bytes`), 'lead'],
        ['peak reserved', (r, i) => bytesOf(d3.max(r.reserved), `runs.${i}.peak_reserved_bytes`)],
        ['fragmentation*', r => percent(fragmentation(r))],
        ['reached in', r => escapeText(`${PHASES[phaseAt(r, r.peak)]}${peakMaker(r)}`)],
    ];
    rows.push(['at the peak', () => '', 'group']);
    CATEGORIES.forEach((name, c) => rows.push([swatch(c) + name,
        (r, i) => bytesOf(r.by[r.peak * N_CATEGORIES + c], `runs.${i}.memory.${name}`), 'sub']));
    if (RUNS.some(r => r.raw.host_peak_allocated_bytes > 0))
        rows.push(['beside, in host memory', (r, i) => bytesOf(r.raw.host_peak_allocated_bytes, `runs.${i}.host_peak_allocated_bytes`)]);
    rows.push(['in the trace', () => '', 'group']);
    rows.push(['events', r => d3.format(',')(r.n)]);
    rows.push(['blocks', r => d3.format(',')(r.nBlocks)]);
    rows.push(['nodes that backward ran', r => d3.format(',')(r.steps.length)]);
    return rows;
}

function phaseAt(run, event) {
    let phase = 0;
    for (const p of run.phases) if (p.from <= event) phase = p.phase;
    return phase;
}

function peakMaker(run) {
    if (run.kind[run.peak] !== ACTION.alloc) return '';
    const o = ownerOf(run, run.raw.blocks.owner[run.ref[run.peak]]);
    return o.op || o.scope ? `, by ${o.op}${o.scope ? ' in ' + o.scope : ''}` : '';
}

function fillNumbers() {
    const head = RUNS.length > 1 ? '<thead><tr><th></th>' + RUNS.map(r => `<th>${escapeText(r.name)}</th>`).join('') + '</tr></thead>' : '';
    const body = numberRows().map(([title, cell, kind]) =>
        `<tr class="${kind || ''}"><th scope="row">${title}</th>${RUNS.map((r, i) => `<td>${cell(r, i)}</td>`).join('')}</tr>`);
    document.getElementById('numbers').innerHTML = head + '<tbody>' + body.join('') + '</tbody>';
}

// Sums of the blocks alive at the peak under a key; largest first, each with its categories.
function groupPeak(run, keyOf) {
    const groups = new Map();
    for (const b of aliveAt(run, run.peak)) {
        const key = keyOf(b), bytes = run.raw.blocks.bytes[b];
        if (!groups.has(key)) groups.set(key, { key, bytes: 0, n: 0, by: new Float64Array(N_CATEGORIES) });
        const group = groups.get(key);
        group.bytes += bytes;
        group.n++;
        group.by[categoryAt(run, b, run.peak)] += bytes;
    }
    return [...groups.values()].sort((a, b) => b.bytes - a.bytes || a.key.localeCompare(b.key, 'en', { numeric: true }));
}

function foldRest(groups) {
    if (groups.length <= MAX_ROWS + 1) return groups;
    const rest = { key: `${groups.length - MAX_ROWS} others`, bytes: 0, n: 0, by: new Float64Array(N_CATEGORIES) };
    for (const g of groups.slice(MAX_ROWS)) {
        rest.bytes += g.bytes;
        rest.n += g.n;
        g.by.forEach((v, c) => { rest.by[c] += v; });
    }
    return [...groups.slice(0, MAX_ROWS), rest];
}

function barTable(groups, max, path) {
    const bar = g => '<div class="bar">' + Array.from(g.by).map((v, c) =>
        v > 0 ? `<span style="width:${100 * v / max}%;background:var(--c${c})"></span>` : '').join('') + '</div>';
    return '<table class="bars"><tbody>' + foldRest(groups).map(g =>
        `<tr><td title="${escapeText(g.key)}, ${g.n} blocks">${escapeText(g.key)}</td><td class="n">${bytesOf(g.bytes, path && path + g.key)}</td><td>${bar(g)}</td></tr>`).join('') +
        '</tbody></table>';
}

function rowTable(run) {
    const rows = run.raw.rows.slice(0, MAX_ROWS).map(([category, op, scope, bytes, n, node, by]) => {
        const freed = node ? `${by} #${node}` : '';
        return `<tr><td>${swatch(category)}${escapeText(op || CATEGORIES[category])}${scope ? ' in ' + escapeText(scope) : ''}</td>` +
            `<td class="n">${n}</td><td class="n">${bytesOf(bytes)}</td><td>${escapeText(freed)}</td></tr>`;
    });
    return '<table class="rows"><thead><tr><th>who</th><th class="n">blocks</th><th class="n">bytes</th><th>freed by backward of</th></tr></thead><tbody>' +
        rows.join('') + '</tbody></table>';
}

function fillPeak(run, parent) {
    const owner = b => run.raw.owners[run.raw.blocks.owner[b]], text = run.raw.strings;
    const by = [
        ['By category', b => CATEGORIES[categoryAt(run, b, run.peak)], `runs.${run.index}.memory.`],
        ['By op', b => text[owner(b)[0]] || '(no op)', null],
        ['By layer', b => text[owner(b)[1]] || '(no layer)', null],
    ];
    const max = d3.max(RUNS, r => r.allocated[r.peak]) || 1; // the same for all runs: bars compare
    parent.innerHTML = `<h3>${escapeText(run.name)}: ${bytesOf(run.allocated[run.peak])}</h3>` +
        by.map(([title, key, path]) => `<h4>${title}</h4>` + barTable(groupPeak(run, key), max, path)).join('') +
        '<h4>Largest groups</h4><div class="scroll">' + rowTable(run) + '</div>';
}
