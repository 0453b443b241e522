/* A small chart of one series over time: a line with its area, the peak as scale, a reading under the
 * pointer.
 *
 * SVG in a box of 300 x 64 that stretches with its card; strokes keep their width. A gap in the series is a
 * gap in the line. The words beside it (and the label for a screen reader) say the same in text. */

import { h, setText, svg } from "./dom.js";
import { clock } from "./format.js";

const WIDTH = 300;
const HEIGHT = 64;

/** The path of a series: {line, area}; points that have no value split it. Pure. */
export function chartPaths(points, top, size) {
    const x = (i) => WIDTH - ((points.length - 1 - i) * WIDTH) / Math.max(1, size - 1);
    const y = (value) => HEIGHT - 2 - (Math.min(value, top) / top) * (HEIGHT - 6);
    const at = (i) => `${x(i).toFixed(1)} ${y(points[i].value).toFixed(1)}`;
    let line = "";
    let area = "";
    let start = -1;
    for (let i = 0; i <= points.length; i++) {
        const there = i < points.length && points[i].value !== null;
        if (there && start < 0) start = i;
        if (there || start < 0) continue;
        const run = [];
        for (let k = start; k < i; k++) run.push(at(k));
        line += `M${run.join("L")}${run.length === 1 ? "h0.1" : ""}`;
        area += `M${x(start).toFixed(1)} ${HEIGHT}L${run.join("L")}L${x(i - 1).toFixed(1)} ${HEIGHT}Z`;
        start = -1;
    }
    return { line, area };
}

/** A round number at or above the peak: 1, 2 or 5 times a power of ten. */
export function niceTop(peak, least = 1) {
    const value = Math.max(peak, least);
    const power = 10 ** Math.floor(Math.log10(value));
    for (const step of [1, 2, 5, 10]) if (step * power >= value * 0.999) return step * power;
    return 10 * power;
}

export class Chart {
    /** options: {label, format(value), top: fixed scale or null, least: smallest scale} */
    constructor(series, options) {
        Object.assign(this, { series, options });
        this.line = svg("path", { class: "chart-line" });
        this.area = svg("path", { class: "chart-area" });
        this.cursor = svg("path", { class: "chart-cursor" });
        this.picture = svg(
            "svg",
            { class: "chart", viewBox: `0 0 ${WIDTH} ${HEIGHT}`, preserveAspectRatio: "none", role: "img" },
            [0.25, 0.5, 0.75].map((f) =>
                svg("path", { class: "chart-grid", d: `M0 ${HEIGHT * f}H${WIDTH}` }),
            ),
            this.area,
            this.line,
            this.cursor,
        );
        this.scale = h("span", { class: "chart-scale num" });
        this.reading = h("span", { class: "chart-reading num" });
        this.element = h("div", { class: "chart-box" }, this.picture, this.scale, this.reading);
        this.picture.addEventListener("pointermove", (event) => this.#point(event));
        this.picture.addEventListener("pointerleave", () => this.#leave());
        this.update();
    }

    update() {
        const { series, options } = this;
        this.top = options.top ?? niceTop(series.peak, options.least ?? 1);
        const { line, area } = chartPaths(series.points, this.top, series.size);
        this.line.setAttribute("d", line);
        this.area.setAttribute("d", area);
        setText(this.scale, options.format(this.top));
        const now = series.last === null ? "nothing now" : `now ${options.format(series.last)}`;
        this.picture.setAttribute(
            "aria-label",
            `${options.label}: ${now}, at most ${options.format(series.peak)}`,
        );
    }

    #point(event) {
        const { points, size } = this.series;
        const box = this.picture.getBoundingClientRect();
        const back = Math.round((1 - (event.clientX - box.left) / box.width) * (size - 1));
        const point = points[points.length - 1 - back];
        if (!point) {
            this.#leave();
            return;
        }
        const x = WIDTH - (back * WIDTH) / (size - 1);
        this.cursor.setAttribute("d", `M${x} 0V${HEIGHT}`);
        setText(
            this.reading,
            `${point.value === null ? "–" : this.options.format(point.value)} at ${clock(point.time)}`,
        );
    }

    #leave() {
        this.cursor.setAttribute("d", "");
        setText(this.reading, "");
    }
}
