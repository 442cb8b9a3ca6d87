// The course: one player per lesson over what was recorded while it ran.
'use strict';

const DATA = JSON.parse(document.getElementById('data').textContent);

function make(tag, attributes, ...children) {
    const e = document.createElement(tag);
    for (const [key, value] of Object.entries(attributes || {})) e.setAttribute(key, value);
    e.append(...children);
    return e;
}
function size(bytes) {
    const units = ['B', 'KiB', 'MiB', 'GiB'];
    let k = 0;
    while (bytes >= 1024 && k < 3) { bytes /= 1024; k++; }
    return k ? `${bytes.toFixed(2)} ${units[k]}` : `${bytes} B`;
}

// The events of one step: the step itself, then what was said, checked and shown.
function stepsOf(lesson) {
    const steps = [];
    for (const event of lesson.events) {
        if (event.state || !steps.length) steps.push({ state: event.state, event, said: [] });
        if (event.kind === 'end') steps[steps.length - 1].said.push({ kind: 'check', text: 'Nothing is left alive.' });
        else if (event.kind === 'refused') steps[steps.length - 1].said.push({ kind: 'refused', text: event.detail });
        else if (event.kind !== 'step' && event.kind !== 'begin') steps[steps.length - 1].said.push(event);
    }
    return steps;
}

// The comment at the top: prose, and what it looks like in PyTorch.
function introOf(source) {
    const comment = source.slice(3, source.indexOf('*/')).split('\n').map(l => l.replace(/^ \* ?/, '').trimEnd());
    const at = comment.findIndex(l => l.startsWith('In PyTorch'));
    const prose = at < 0 ? comment : comment.slice(0, at), torch = at < 0 ? [] : comment.slice(at);
    if (torch.length) torch[0] = torch[0].replace(/^In PyTorch:? ?(the same: ?)?/, '');
    return { prose: prose.join(' ').trim(), torch: torch.map(l => l.replace(/^ {4}/, '')).join('\n').trim() };
}

// ---- what is alive ------------------------------------------------------------------------

function nameLines(state, before) {
    const lines = [], old = new Map((before ? before.names : []).map(n => [n.name + n.function, n.storage]));
    for (const n of state.names) {
        const label = n.function ? `${n.name} in ${n.function}()` : n.name;
        if (n.same_as_before) { lines[lines.length - 1].label += ` = ${label}`; continue; }
        lines.push({ label, n, fresh: old.get(n.name + n.function) !== n.storage });
    }
    return lines.map(({ label, n, fresh }) => make('li', fresh ? { class: 'new' } : {}, make('b', {}, label), ` ${n.tensor}, ${size(n.bytes)}, ` +
        `${n.references} reference${n.references === 1 ? '' : 's'}${n.gradient_bytes ? `, gradient ${size(n.gradient_bytes)}` : ''}`));
}

const WORDS = { kept: 'keeps', promised: 'can make again', refilled: 'has made again', packed: 'has packed', unpacked: 'has unpacked', released: 'has released' };
function nodeLine(node) {
    const kinds = new Set(node.slots.map(s => s.state)), li = make('li', { class: 'node' }, make('b', {}, `${node.op} #${node.node}`));
    if (kinds.has('kept') || kinds.has('refilled')) li.classList.add('keeps');
    else if (kinds.has('promised') || kinds.has('packed')) li.classList.add('promises');
    const slots = node.slots.filter(s => s.state !== 'empty');
    for (const s of slots) li.append(make('span', { class: s.state === 'released' ? 'gone' : '' }, `${WORDS[s.state]} ${s.name}, ${size(s.bytes)}`));
    if (!slots.length) li.append(make('span', { class: 'soft' }, 'keeps nothing'));
    return li;
}

function curve(steps, k) {
    const W = 400, H = 80, NS = 'http://www.w3.org/2000/svg';
    const top = Math.max(1, ...steps.map(s => s.state ? s.state.reserved_bytes : 0)), x = i => i * W / steps.length, y = b => H - 1 - (H - 4) * b / top;
    const svg = document.createElementNS(NS, 'svg'), add = (tag, attributes) => {
        const e = document.createElementNS(NS, tag);
        for (const [key, value] of Object.entries(attributes)) e.setAttribute(key, value);
        svg.append(e);
    };
    svg.setAttribute('viewBox', `0 0 ${W} ${H}`);
    svg.setAttribute('preserveAspectRatio', 'none');
    svg.setAttribute('class', 'curve');
    svg.setAttribute('role', 'img');
    svg.setAttribute('aria-label', 'Allocated (filled) and reserved (dashed) bytes after each step');
    steps.forEach((s, i) => s.state && add('rect', { class: 'allocated', x: x(i), y: y(s.state.allocated_bytes), width: W / steps.length - 1,
        height: H - 1 - y(s.state.allocated_bytes), opacity: i <= k ? 1 : 0.35 }));
    add('path', { class: 'reserved', 'vector-effect': 'non-scaling-stroke',
        d: steps.map((s, i) => s.state ? `M${x(i)} ${y(s.state.reserved_bytes)}H${x(i + 1)}` : '').join('') });
    add('line', { class: 'cursor', 'vector-effect': 'non-scaling-stroke', x1: x(k + 0.5), x2: x(k + 0.5), y1: 0, y2: H });
    return svg;
}

function list(items, empty) { return make('ul', {}, ...(items.length ? items : [make('li', { class: 'soft' }, empty)])); }

// ---- a lesson's player ----------------------------------------------------------------------

let touched = null;

function player(lesson, section) {
    const steps = stepsOf(lesson), state = make('div', { class: 'state' }), said = make('div', { class: 'said', 'aria-live': 'polite' });
    const source = make('pre', { class: 'source', tabindex: 0 });
    const lines = lesson.source.trimEnd().split('\n').map((text, i) => make('span', { 'data-line': i + 1 }, text || ' '));
    const slider = make('input', { type: 'range', class: 'slider', min: 0, max: steps.length - 1, value: 0, 'aria-label': 'Step' });
    const position = make('output', {}), play = make('button', { type: 'button' }, 'Play');
    let k = 0, timer = null;

    function show(to) {
        k = Math.max(0, Math.min(steps.length - 1, to));
        const step = steps[k], before = k ? steps[k - 1].state : null, line = step.event.kind === 'end' ? 0 : step.event.line || 0;
        slider.value = k;
        position.textContent = k ? `step ${k} of ${steps.length - 1}` : 'before the first step';
        lines.forEach((e, i) => { e.className = i + 1 === line ? 'now' : ''; });
        if (line) source.scrollTop = Math.max(0, lines[line - 1].offsetTop - source.clientHeight / 2);
        said.replaceChildren(...step.said.map(e => make(['why', 'table', 'leak'].includes(e.kind) ? 'pre' : 'p', { class: e.kind },
            e.kind === 'why' ? `kept alive by\n${e.text.trimEnd()}` : e.text)));
        if (!step.state) return;
        const older = step.state.live_nodes - step.state.tape.length;
        state.replaceChildren(make('h3', {}, 'Names alive'), list(nameLines(step.state, before), 'none'),
            make('h3', {}, `Tape: ${size(step.state.saved_bytes)} kept`), list(step.state.tape.map(nodeLine), 'empty'),
            ...(older > 0 ? [make('p', { class: 'soft' }, `and ${older} older ones`)] : []),
            make('h3', {}, `Live: ${size(step.state.allocated_bytes)} allocated, ${size(step.state.reserved_bytes)} reserved`), curve(steps, k));
    }
    function stop() { clearInterval(timer); timer = null; play.textContent = 'Play'; }
    function go(to) { touched = { go, at: () => k }; stop(); show(to); }
    function start() {
        if (timer) return stop();
        if (k === steps.length - 1) show(0);
        play.textContent = 'Pause';
        timer = setInterval(() => (k < steps.length - 1 ? show(k + 1) : stop()), 1500);
    }
    const back = make('button', { type: 'button', 'aria-label': 'One step back' }, '\u22121');
    const forth = make('button', { type: 'button', 'aria-label': 'One step on' }, '+1');
    back.onclick = () => go(k - 1);
    forth.onclick = () => go(k + 1);
    slider.oninput = () => go(Number(slider.value));
    play.onclick = () => { touched = { go, at: () => k }; start(); };
    source.append(...lines.slice(lesson.source.slice(0, lesson.source.indexOf('*/')).split('\n').length)); // the intro is above
    section.append(make('div', { class: 'tools' }, play, back, forth, slider, position), make('div', { class: 'sides' }, source, make('div', {}, said, state)));
    show(Math.min(1, steps.length - 1));
    return { steps, show };
}

function showLesson(lesson, i) {
    const intro = introOf(lesson.source), section = make('section', { class: 'lesson', id: lesson.name });
    section.append(make('h2', {}, make('small', {}, `${i + 1}. ${lesson.name}`), lesson.claim), make('p', {}, intro.prose));
    if (intro.torch) section.append(make('pre', { class: 'torch' }, intro.torch));
    document.getElementById('contents').append(make('li', {}, make('a', { href: `#${lesson.name}` }, lesson.claim)));
    document.getElementById('lessons').append(section);
    return player(lesson, section);
}

const players = DATA.lessons.map(showLesson);
touched = null;
document.addEventListener('keydown', event => {
    if (!touched || event.target.matches('input') || (event.key !== 'ArrowLeft' && event.key !== 'ArrowRight')) return;
    touched.go(touched.at() + (event.key === 'ArrowRight' ? 1 : -1));
    event.preventDefault();
});

// With #check the page steps through everything and tells a test what it saw.
if (location.hash === '#check') {
    const seen = players.map((p, i) => {
        p.steps.forEach((_, k) => p.show(k));
        return { name: DATA.lessons[i].name, steps: p.steps.length, wide: document.documentElement.scrollWidth > window.innerWidth };
    });
    document.body.append(make('pre', { id: 'check' }, JSON.stringify(seen)));
}
