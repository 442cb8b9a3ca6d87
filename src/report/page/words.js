'use strict';
// What every page has: its data, and numbers as words.

const errors = [];
window.addEventListener('error', e => errors.push(String(e.message)));

const DATA = JSON.parse(document.getElementById('data').textContent);
const CATEGORIES = DATA.categories, N_CATEGORIES = CATEGORIES.length, PHASES = DATA.phases;

const UNITS = ['B', 'KiB', 'MiB', 'GiB', 'TiB'];
function unitOf(bytes) {
    let unit = 0;
    while (Math.abs(bytes) >= 1024 && unit < UNITS.length - 1) { bytes /= 1024; unit++; }
    return unit;
}
function size(bytes) {
    const unit = unitOf(bytes), value = bytes / 1024 ** unit;
    return (unit === 0 ? value : value.toFixed(value < 9.995 ? 2 : value < 99.95 ? 1 : 0)) + ' ' + UNITS[unit];
}
const exact = bytes => d3.format(',')(bytes) + ' bytes';
function duration(ns) {
    if (ns < 1e3) return Math.round(ns) + ' ns';
    if (ns < 1e6) return (ns / 1e3).toPrecision(3) + ' µs';
    if (ns < 1e9) return (ns / 1e6).toPrecision(3) + ' ms';
    return (ns / 1e9).toPrecision(3) + ' s';
}
const percent = share => (100 * share).toFixed(1) + ' %';
const escapeText = text => String(text).replace(/[&<>"]/g, c => '&#' + c.charCodeAt(0) + ';');
// A number of bytes that the self-check and the tests find again.
const bytesOf = (bytes, path) =>
    `<data value="${bytes}"${path ? ` data-path="${path}"` : ''} title="${exact(bytes)}">${size(bytes)}</data>`;
