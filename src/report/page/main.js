// The page as a whole.

function fillHead() {
    const first = DATA.runs[0], steps = first.first_step === first.last_step ? `step ${first.last_step}`
        : `steps ${first.first_step} to ${first.last_step}`;
    document.getElementById('subtitle').textContent =
        `Training ${steps} on ${first.device}: ${RUNS.map(r => r.name).join(' beside ')}.`;
    document.getElementById('colophon').textContent =
        `Written by ebb ${DATA.version} (ebb trace --html). Drawn with d3 ${d3.version}, copyright Mike Bostock, ISC licence.`;
    document.getElementById('legend').innerHTML = CATEGORIES.map((name, c) =>
        RUNS.some(r => r.by.some((v, i) => v > 0 && i % N_CATEGORIES === c)) ? `<li>${swatch(c)}${name}</li>` : '').join('');
    const seen = new Set(RUNS.flatMap(r => r.phases.map(p => p.phase)));
    document.getElementById('phases').innerHTML = 'strip above the pictures: ' + [...seen].sort((a, b) => a - b).map(p =>
        `<span><span class="swatch" style="background:var(--phase${p})"></span>${PHASES[p]}</span>`).join('');
    document.documentElement.style.setProperty('--n-runs', Math.min(2, RUNS.length));
    document.title = 'ebb trace: ' + RUNS.map(r => r.name).join(', ');
}

function panel(section, run, title) {
    const box = document.createElement('div');
    if (title) box.innerHTML = `<h3>${escapeText(run.name)}</h3>`;
    document.querySelector(`#${section} .runs`).append(box);
    return box;
}

function build() {
    fillHead();
    fillNumbers();
    if (FRONTIER) {
        document.getElementById('frontier').hidden = false;
        fillFrontier(document.getElementById('frontier'));
    }
    for (const run of RUNS) {
        const timeline = panel('timeline', run, RUNS.length > 1);
        run.chart = makeChart(timeline, `Live bytes of ${run.name}: peak ${size(run.allocated[run.peak])}`);
        run.fragmentation = makeChart(timeline, `Share of reserved bytes that is unused in ${run.name}`);
        run.mapChart = makeChart(panel('map', run, RUNS.length > 1), `Addresses of the blocks of ${run.name} over time`);
        fillPeak(run, panel('peak', run, false));
        makeBackward(run, panel('backward', run, false));
        watchTimeline(run);
        watchMap(run);
    }
    watchPlayer();
    watchAxis();
}

function watchAxis() {
    for (const radio of document.querySelectorAll('input[name=axis]')) {
        radio.checked = radio.value === axis;
        radio.addEventListener('change', () => { axis = radio.value; render(); });
    }
    document.getElementById('whole').addEventListener('click', e => {
        e.target.hidden = true;
        RUNS.forEach(run => { run.view = null; });
        render();
    });
}

// Of one run's column, whatever sections are shown.
function columnWidth() {
    const n = innerWidth <= 900 ? 1 : Math.min(2, RUNS.length), rem = parseFloat(getComputedStyle(document.documentElement).fontSize);
    return Math.max(220, Math.floor((document.querySelector('main').clientWidth - (n - 1) * 1.6 * rem) / n));
}

function render(width) {
    readPalette();
    for (const run of RUNS) {
        run.width = width || columnWidth();
        drawTimeline(run, run.width);
        drawMap(run, run.width);
    }
    if (FRONTIER) drawFrontier(width ? 900 : document.querySelector('main').clientWidth);
    goTo(player.k);
}

let drawnWidth = 0;
function renderWhenResized() {
    const width = columnWidth();
    if (width !== drawnWidth) { drawnWidth = width; render(); }
}

build();
renderWhenResized();
goTo(Math.round(RUNS[0].steps.filter(step => step.graph === 0).length / 2)); // the middle of a backward shows most
addEventListener('resize', () => requestAnimationFrame(renderWhenResized));
matchMedia('(prefers-color-scheme: dark)').addEventListener('change', () => render());
addEventListener('beforeprint', () => { document.documentElement.dataset.print = ''; render(RUNS.length > 1 ? 460 : 900); });
addEventListener('afterprint', () => { delete document.documentElement.dataset.print; render(); });
// For tests and pictures: #check, #point, #only=timeline, joined by "+".
for (const [what, section] of location.hash.slice(1).split('+').map(part => part.split('='))) {
    if (what === 'only') document.querySelectorAll('main > section').forEach(s => { s.hidden = s.id !== section; });
    if (what === 'point') pointAtPeak(RUNS[0]);
    if (what === 'check') checkPage();
}
