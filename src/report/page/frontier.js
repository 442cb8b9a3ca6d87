// Peak against time: plans from the fastest to the smallest, a budget to move over them, and what the fastest plan
// within it keeps and makes again.  A page without DATA.frontier has none of it.

const FRONTIER = DATA.frontier || null;
const front = { budget: 0, chart: null, strip: null, width: 0 };

const peakOf = figures => figures[FRONTIER.peak];
const added = figures => (figures.overhead >= 0 ? '+' : '\u2212') + (100 * Math.abs(figures.overhead)).toFixed(1) + ' %';
const ofAll = figures => (peakOf(figures) / peakOf(FRONTIER.points[0])).toFixed(3);
const flops = n => (n > 0 ? d3.format('.3s')(n).replace(/([kMGTP])$/, ' $1') : '0');
// Points come from the fastest: the first that fits.  -1: none does.
const fastestWithin = budget => FRONTIER.points.findIndex(p => peakOf(p) <= budget);
// Whether plans may keep what they save in host memory, so that the setting offered to copy has to allow it.
const mayOffload = () => FRONTIER.points.some(p => (p.plan.offload || []).length > 0);
const usesHost = () => [...FRONTIER.points, ...FRONTIER.marks].some(p => p.host > 0);
// A run's budget is of reserved bytes, whatever the chart is of.
const settingOf = p => `memory.checkpoint=budget:${p.reserved}`;
const ownMark = () => d3.least(FRONTIER.marks.filter(m => m.own), peakOf);

function fillFrontier(section) {
    const points = FRONTIER.points, least = peakOf(points[points.length - 1]), most = peakOf(points[0]);
    section.innerHTML = `<h2>Peak against time</h2>
<p class="note">Each dot is a way to run the same step with the same gradients: how many bytes it needs at most
(${FRONTIER.peak}, exact) and how much longer it takes (by the model of time). The line is the fastest way within a
budget. <span class="screen">Point at a dot, or move the budget.</span></p>
<div class="chart-box"></div>
<p id="frontier-legend">${swatchOf('dot')}plans of ebb plan ${swatchOf('ring')}settings of memory.checkpoint${ownMark() ? ' ' + swatchOf('own') + (DATA.runs ? 'this run' : 'this config') : ''}</p>
<div class="tools screen"><label for="budget">budget</label>
<input type="range" id="budget" min="${least}" max="${Math.max(most, ...FRONTIER.marks.map(peakOf))}" step="1"><output id="within" for="budget"></output></div>
<div id="chosen"></div>
<div class="strip-box"></div>
<h3>All plans</h3>
<div class="scroll"><table id="plans"><thead><tr><th class="n">reserved</th><th class="n">allocated</th>
<th class="n">of none</th><th class="n">added time</th>${usesHost() ? '<th class="n">host memory</th>' : ''}<th>plan</th></tr></thead><tbody>${points.map((p, i) =>
        `<tr><td class="n">${bytesOf(p.reserved, `frontier.${i}.reserved`)}</td><td class="n">${bytesOf(p.allocated, `frontier.${i}.allocated`)}</td>` +
        `<td class="n">${ofAll(p)}</td><td class="n">${added(p)}</td>` +
        `${usesHost() ? `<td class="n">${p.host > 0 ? bytesOf(p.host, `frontier.${i}.host`) : '0'}</td>` : ''}<td>${escapeText(p.words)}</td></tr>`).join('')}</tbody></table></div>`;
    front.chart = makeChart(section.querySelector('.chart-box'), `Peak against time of ${points.length} plans, from ${size(most)} to ${size(least)}`);
    front.strip = makeChart(section.querySelector('.strip-box'), 'What the plan keeps and makes again, block by block');
    watchFrontier(section);
    const own = ownMark(), says = own && peakOf(own) >= least && peakOf(own) < most; // keeping everything has nothing to show
    front.budget = says ? peakOf(own) : peakOf(points[Math.floor(points.length / 2)]);
}

const swatchOf = kind => `<svg class="mark" viewBox="0 0 14 14" aria-hidden="true">${kind === 'dot' ? '<circle class="plan" cx="7" cy="7" r="4"/>'
    : `<path class="${kind}" d="M7 1.5L12.5 7L7 12.5L1.5 7Z"/>`}</svg>`;

// ---- the chart ---------------------------------------------------------------------------------

function drawFrontier(width) {
    front.width = width;
    const chart = front.chart, wide = Math.min(width, 960), height = Math.round(Math.max(240, Math.min(430, wide * 0.52)));
    const all = [...FRONTIER.points, ...FRONTIER.marks], left = 46, right = 14, top = 16, bottom = 40;
    sizeChart(chart, wide, height);
    const most = d3.max(all, peakOf), low = Math.min(0, d3.min(all, p => p.overhead)), high = Math.max(0.02, d3.max(all, p => p.overhead));
    chart.x = d3.scaleLinear([0, most * 1.04], [left, wide - right]);
    chart.bent = high > 0.8; // the smallest plans may take many times as long: the root leaves room for the others
    chart.y = d3.scalePow([low, high * 1.08], [height - bottom, top]).exponent(chart.bent ? 0.5 : 1);
    drawAxes(chart, wide, height, { left, right, top, bottom, most });
    drawStairs(chart, wide - right);
    drawMarks(chart, wide);
    chart.top = chart.svg.append('g'); // the budget and the chosen plan, drawn again when they change
    chooseBudget(front.budget);
}

function drawAxes(chart, width, height, at) {
    const { svg, x, y } = chart, unit = unitOf(at.most), nothing = x(peakOf(FRONTIER.points[FRONTIER.points.length - 1]));
    svg.append('rect').attr('class', 'nothing').attr('x', at.left).attr('y', at.top).attr('width', nothing - at.left).attr('height', height - at.bottom - at.top);
    if (nothing - at.left > 70)
        svg.append('text').attr('x', (at.left + nothing) / 2).attr('y', (at.top + height - at.bottom) / 2).attr('text-anchor', 'middle').text('nothing fits');
    svg.append('g').attr('class', 'grid').selectAll('line').data(timeTicks(chart)).join('line').attr('x1', at.left).attr('x2', width - at.right).attr('y1', y).attr('y2', y);
    svg.append('g').attr('transform', `translate(0,${height - at.bottom})`)
        .call(d3.axisBottom(x).tickValues(byteTicks(at.most * 1.04, width < 500 ? 4 : 8)).tickSize(4).tickFormat(v => d3.format('~g')(v / 1024 ** unit)));
    svg.append('g').attr('transform', `translate(${at.left},0)`)
        .call(d3.axisLeft(y).tickValues(timeTicks(chart)).tickSize(4).tickFormat(v => d3.format('+~g')(100 * v).replace('+0', '0').replace('-', '\u2212') + '%'));
    svg.append('text').attr('x', width - at.right).attr('y', height - 5).attr('text-anchor', 'end').text(`peak ${FRONTIER.peak}, ${UNITS[unit]}`);
    svg.append('text').attr('x', at.left + 6).attr('y', at.top - 4).text(`added time per step${chart.bent ? ' (square-root scale)' : ''}`);
}

// Round values, at least 24 pixels apart.
function timeTicks({ y, bent }) {
    if (!bent) return y.ticks(5);
    const kept = [];
    for (const v of [0, 0.05, 0.1, 0.2, 0.5, 1, 2, 3, 5, 10, 20, 30, 50, 100, 200, 500])
        if (v <= y.domain()[1] && !kept.some(k => Math.abs(y(k) - y(v)) < 24)) kept.push(v);
    return kept;
}

// Between two plans the smaller one is what fits.
function drawStairs(chart, end) {
    const rising = [...FRONTIER.points].reverse().map(p => [chart.x(peakOf(p)), chart.y(p.overhead)]);
    rising.push([end, rising[rising.length - 1][1]]);
    chart.svg.append('path').attr('class', 'stairs').attr('d', d3.line().curve(d3.curveStepAfter)(rising));
    chart.svg.append('g').selectAll('circle').data(FRONTIER.points).join('circle').attr('class', 'plan').attr('r', 4)
        .attr('cx', p => chart.x(peakOf(p))).attr('cy', p => chart.y(p.overhead));
}

const overlaps = (a, b) => a[0] < b[2] && b[0] < a[2] && a[1] < b[3] && b[1] < a[3];

// From a point to a box [left, top, right, bottom].
const distance = ([x, y], b) => Math.hypot(Math.max(b[0] - x, 0, x - b[2]), Math.max(b[1] - y, 0, y - b[3]));
const PLACES = [[10, 4], [10, -10], [10, 18], [-10, 4], [-10, -10], [0, -14], [10, -24], [-10, -24], [20, -38], [-10, 32], [10, 32], [-20, -38], [24, -54]];

// A label goes to the first place around its mark where it covers nothing and is nearest to its own mark; a line
// leads to one that is further away.
function drawMarks(chart, width) {
    const at = f => [chart.x(peakOf(f)), chart.y(f.overhead)], spots = FRONTIER.marks.map(at);
    const taken = [...spots, ...FRONTIER.points.map(at)].map(([x, y]) => [x - 6, y - 6, x + 6, y + 6]);
    const g = chart.svg.append('g'), inside = b => b[0] > 46 && b[2] < width && b[1] > 12 && b[3] < chart.height - 38;
    FRONTIER.marks.forEach((mark, i) => {
        const [x, y] = spots[i], wide = 6.6 * mark.name.length + 2;
        g.append('path').attr('class', mark.own ? 'own' : 'ring').attr('d', `M${x} ${y - 6}L${x + 6} ${y}L${x} ${y + 6}L${x - 6} ${y}Z`);
        const boxes = PLACES.map(([dx, dy]) => [x + dx - (dx < 0 ? wide : dx > 0 ? 0 : wide / 2), y + dy - 10, 0, y + dy + 2]);
        boxes.forEach(b => { b[2] = b[0] + wide; });
        const fits = b => inside(b) && !taken.some(other => overlaps(b, other)) && spots.every((s, k) => k === i || distance(s, b) > distance(spots[i], b));
        const place = boxes.find(fits) || boxes.find(inside);
        if (!place) return;
        taken.push(place);
        const below = place[1] > y;
        if (distance(spots[i], place) > 13)
            g.append('line').attr('class', 'leader').attr('x1', x).attr('y1', below ? y + 6 : y - 6)
                .attr('x2', (place[0] + place[2]) / 2).attr('y2', below ? place[1] + 1 : place[3] + 1);
        g.append('text').attr('class', mark.own ? 'strong' : '').attr('x', place[0]).attr('y', place[3] - 2).text(mark.name);
    });
}

// ---- the plan ----------------------------------------------------------------------------------

// Ranges that touch are one.
function addRange(ranges, [first, last]) {
    const before = ranges[ranges.length - 1];
    if (before && before[1] + 1 === first) before[1] = last;
    else ranges.push([first, last]);
}

// One row of blocks per thing that is said of them: [name, class, [[first, last], ...]].
function planRows(plan) {
    const rows = [], depth = (list, level) => list.forEach(s => {
        while (rows.length <= level) rows.push([rows.length ? `${rows.length + 1} deep` : 'segments', 'again', []]);
        rows[level][2].push(s.blocks);
        depth(s.inside || [], level + 1);
    });
    depth(plan.segments, 0);
    for (const { blocks, ops } of plan.recompute || [])
        for (const op of ops) {
            let row = rows.find(r => r[0] === op);
            if (!row) rows.push(row = [op, 'op', []]);
            addRange(row[2], blocks);
        }
    if ((plan.offload || []).length) rows.push(['offload', 'away', plan.offload]);
    return rows.length ? rows : [['all kept', 'kept', [[0, FRONTIER.blocks - 1]]]];
}

function drawPlan(plan) {
    const rows = planRows(plan), wide = Math.min(front.width, 960), left = 84, line = 17, height = rows.length * line + 22;
    sizeChart(front.strip, wide, height);
    const svg = front.strip.svg, x = d3.scaleLinear([0, FRONTIER.blocks], [left, wide - 14]);
    rows.forEach(([name, kind, ranges], r) => {
        svg.append('text').attr('x', left - 6).attr('y', r * line + 12).attr('text-anchor', 'end').text(name.length > 13 ? name.slice(0, 12) + '\u2026' : name);
        svg.append('rect').attr('class', 'line').attr('x', x(0)).attr('y', r * line + 2).attr('width', x(FRONTIER.blocks) - x(0)).attr('height', line - 4);
        for (const [first, last] of ranges)
            svg.append('rect').attr('class', kind).attr('x', x(first) + 0.5).attr('y', r * line + 2).attr('width', Math.max(1, x(last + 1) - x(first) - 1)).attr('height', line - 4);
    });
    const ticks = x.ticks(Math.min(FRONTIER.blocks, wide < 500 ? 5 : 10)).filter(b => Number.isInteger(b) && b < FRONTIER.blocks);
    for (const b of ticks) svg.append('text').attr('x', (x(b) + x(b + 1)) / 2).attr('y', height - 7).attr('text-anchor', 'middle').text(b);
    svg.append('text').attr('x', left - 6).attr('y', height - 7).attr('text-anchor', 'end').text('block');
}

function chooseBudget(budget) {
    front.budget = budget;
    const i = fastestWithin(budget), p = FRONTIER.points[i], { x, y, top, height } = front.chart;
    const slider = document.getElementById('budget');
    slider.value = budget;
    slider.setAttribute('aria-valuetext', `${size(budget)}: ${p ? added(p) : 'nothing fits'}`);
    document.getElementById('within').innerHTML = bytesOf(budget);
    top.selectAll('*').remove();
    top.append('line').attr('class', 'peak').attr('x1', x(budget)).attr('x2', x(budget)).attr('y1', 16).attr('y2', height - 40);
    document.querySelectorAll('#plans tbody tr').forEach((row, k) => { row.className = k === i ? 'chosen' : ''; });
    if (!p) return;
    top.append('circle').attr('class', 'chosen').attr('r', 7).attr('cx', x(peakOf(p))).attr('cy', y(p.overhead));
    document.getElementById('chosen').innerHTML = `<p>The fastest within ${size(budget)}: <b>${added(p)}</b> time,
<b>${bytesOf(peakOf(p), 'frontier.chosen')}</b> ${FRONTIER.peak} (${ofAll(p)} of keeping everything), ${p.host > 0 ? `${bytesOf(p.host, 'frontier.chosen.host')} of host memory beside, ` : ''}${p.recompute_flops > 0 ? flops(p.recompute_flops) + ' FLOP' : 'nothing'} made again per step.<br>
${escapeText(p.words)}. <code>${settingOf(p)}</code>${mayOffload() ? ' with <code>memory.offload=auto</code>' : ''}</p>`;
    drawPlan(p.plan);
}

// ---- pointing ----------------------------------------------------------------------------------

function describeFigures(f) {
    return `<b>${escapeText(f.name || f.words)}</b><br>${added(f)} time, ${flops(f.recompute_flops)} FLOP made again<br>` +
        `reserved <b>${size(f.reserved)}</b> <span class="soft">(${exact(f.reserved)})</span><br>allocated ${size(f.allocated)} <span class="soft">(${exact(f.allocated)})</span>` +
        (f.host > 0 ? `<br>host memory ${size(f.host)} <span class="soft">(${exact(f.host)})</span>` : '');
}

function nearestFigures(event) {
    const [px, py] = pointIn(front.chart, event), away = f => Math.hypot(front.chart.x(peakOf(f)) - px, front.chart.y(f.overhead) - py);
    const best = d3.least([...FRONTIER.marks, ...FRONTIER.points], away);
    return away(best) < 30 ? best : null;
}

function watchFrontier(section) {
    const box = front.chart.box;
    box.addEventListener('pointermove', e => {
        const f = nearestFigures(e);
        if (f) showTip(e, describeFigures(f));
        else hideTip();
    });
    box.addEventListener('pointerleave', hideTip);
    box.addEventListener('click', e => {
        const f = nearestFigures(e);
        if (f && fastestWithin(peakOf(f)) >= 0) chooseBudget(peakOf(f));
    });
    section.querySelector('#budget').addEventListener('input', e => chooseBudget(Number(e.target.value)));
    section.querySelectorAll('#plans tbody tr').forEach((row, i) => row.addEventListener('click', () => chooseBudget(peakOf(FRONTIER.points[i]))));
}

// For tests: what is drawn and what each control does, read back from the document.
function checkFrontier() {
    const shown = path => { const d = document.querySelector(`data[data-path="${path}"]`); return d ? Number(d.value) : null; };
    const slider = document.getElementById('budget'), before = front.budget, box = front.chart.box.getBoundingClientRect(), found = {};
    found.points = FRONTIER.points.map((p, i) => ({ reserved: shown(`frontier.${i}.reserved`), allocated: shown(`frontier.${i}.allocated`), host: shown(`frontier.${i}.host`) || 0 }));
    const narrow = document.documentElement.clientWidth;
    found.legible = [...document.querySelectorAll('#plans td:last-child')].every(cell => cell.getBoundingClientRect().right <= narrow);
    found.circles = front.chart.svg.selectAll('circle.plan').size();
    found.marks = [...front.chart.svg.node().querySelectorAll('path.ring, path.own')].length;
    found.budgets = [0, 0.3, 0.7, 1].map(share => {
        slider.value = Math.round(Number(slider.min) + share * (slider.max - slider.min));
        slider.dispatchEvent(new Event('input'));
        return { budget: Number(slider.value), chosen: shown('frontier.chosen'), host: shown('frontier.chosen.host') || 0, settings: [...document.querySelectorAll('#chosen code')].map(c => c.textContent),
                 away: front.strip.svg.selectAll('rect.away').size(), rows: front.strip.svg.selectAll('rect:not(.line)').size(),
                 row: [...document.querySelectorAll('#plans tbody tr')].findIndex(row => row.className === 'chosen') };
    });
    found.tips = [FRONTIER.points[FRONTIER.points.length - 1], FRONTIER.marks[0]].filter(f => f).map(f => {
        front.chart.box.dispatchEvent(new PointerEvent('pointermove', { pointerType: 'mouse',
            clientX: box.left + front.chart.x(peakOf(f)) * box.width / front.chart.width, clientY: box.top + front.chart.y(f.overhead) * box.height / front.chart.height }));
        return tip.hidden ? '' : tip.textContent;
    });
    hideTip();
    chooseBudget(before);
    return found;
}
