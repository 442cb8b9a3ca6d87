// The page of `ebb plan --frontier --html`.

function build() {
    const n = FRONTIER.points.length, plans = n === 1 ? 'one plan, ' : `${n} plans from the fastest to the smallest, each `;
    document.getElementById('subtitle').textContent = `${FRONTIER.name}: ${plans}confirmed by a dry run.`;
    document.getElementById('colophon').textContent =
        `Written by ebb ${DATA.version} (ebb plan --frontier --html). Drawn with d3 ${d3.version}, copyright Mike Bostock, ISC licence.`;
    document.title = 'ebb frontier: ' + FRONTIER.name;
    fillFrontier(document.getElementById('frontier'));
}

function render(width) { drawFrontier(width || Math.max(220, document.querySelector('main').clientWidth)); }

build();
render();
addEventListener('resize', () => requestAnimationFrame(() => {
    if (document.querySelector('main').clientWidth !== front.width) render();
}));
addEventListener('beforeprint', () => { document.documentElement.dataset.print = ''; render(900); });
addEventListener('afterprint', () => { delete document.documentElement.dataset.print; render(); });
if (location.hash === '#check') {
    const found = { frontier: checkFrontier(), errors,
                    wide: document.documentElement.scrollWidth <= document.documentElement.clientWidth };
    const out = document.createElement('pre');
    out.id = 'check';
    out.hidden = true;
    out.textContent = JSON.stringify(found);
    document.body.append(out);
}
