/* The panel of settings: model and sampling, thinking, this page, and what is stored.
 *
 * An empty field leaves the value to the server; what the server would take (from /props) stands in it in
 * grey. */

import { h, icon, iconButton, refill } from "./dom.js";
import { short } from "./format.js";

/** key, label, field of /props, least, most, step of the slider, what it does. */
const NUMBERS = [
    [
        "temperature",
        "Temperature",
        "temperature",
        0,
        2,
        0.05,
        "Higher is more surprising; 0 always takes the likeliest token.",
    ],
    ["topK", "Top-k", "top_k", 0, 200, 1, "Only the k likeliest tokens; 0: all."],
    ["topP", "Top-p", "top_p", 0, 1, 0.01, "The likeliest tokens that together reach p."],
    ["minP", "Min-p", "min_p", 0, 1, 0.01, "Tokens at least p times as likely as the likeliest."],
    [
        "repeatPenalty",
        "Repeat penalty",
        "repeat_penalty",
        0.5,
        2,
        0.01,
        "Above 1, tokens that were there become less likely.",
    ],
    [
        "presencePenalty",
        "Presence penalty",
        "presence_penalty",
        -2,
        2,
        0.05,
        "Once for each token that was there.",
    ],
    [
        "frequencyPenalty",
        "Frequency penalty",
        "frequency_penalty",
        -2,
        2,
        0.05,
        "For every time a token was there.",
    ],
];

const THINKING = [
    ["", "As the model does by itself"],
    ["off", "Off"],
    ["on", "On"],
    ["low", "Low effort"],
    ["medium", "Medium effort"],
    ["high", "High effort"],
];

const THEMES = [
    ["auto", "System"],
    ["light", "Light"],
    ["dark", "Dark"],
];

export class SettingsView {
    /** actions: {close, setSystem(text), saveAll, readFile(file), removeAll, changeKey, shortcuts} */
    constructor(element, { settings, link, keys, actions }) {
        Object.assign(this, { element, settings, link, keys, actions });
        this.system = "";
        this.draw();
        link.addEventListener("facts", () => this.draw());
    }

    /** The conversation the system prompt belongs to. */
    useSystem(text) {
        this.system = text;
        if (this.systemArea && document.activeElement !== this.systemArea) this.systemArea.value = text;
    }

    draw() {
        // Someone who types in the panel is not interrupted by news of the server.
        if (
            this.element.contains(document.activeElement) &&
            document.activeElement.matches("input, textarea, select")
        )
            return;
        refill(
            this.element,
            h(
                "header",
                { class: "panel-head" },
                h("h2", { text: "Settings" }),
                iconButton("close", "Close settings", () => this.actions.close()),
            ),
            h(
                "div",
                { class: "panel-body" },
                this.#modelPart(),
                this.#samplingPart(),
                this.#pagePart(),
                this.#dataPart(),
            ),
        );
    }

    #modelPart() {
        const { models } = this.link;
        const names = models.map((model) => [
            model.id,
            model.meta?.n_params ? `${model.id} (${short(model.meta.n_params)})` : model.id,
        ]);
        const choice =
            models.length > 1
                ? this.#select("model", "Model", names)
                : h(
                      "p",
                      { class: "fact" },
                      h("span", { class: "muted", text: "Model" }),
                      h("span", { text: this.link.modelName || "–" }),
                  );
        this.systemArea = h("textarea", { rows: "3", placeholder: "None", props: { value: this.system } });
        this.systemArea.addEventListener("change", () => {
            this.system = this.systemArea.value;
            this.actions.setSystem(this.system);
        });
        const keep = h("button", {
            type: "button",
            class: "link-button",
            text: "Use for new conversations too",
        });
        keep.addEventListener("click", () => {
            this.settings.set("system", this.systemArea.value);
            this.actions.setSystem(this.systemArea.value);
            keep.textContent = "New conversations start with it";
        });
        return section(
            "Model",
            choice,
            h(
                "label",
                { class: "field" },
                h("span", { text: "System prompt of this conversation" }),
                this.systemArea,
            ),
            keep,
            // A server that knows that its model does not think says so.
            this.link.props?.thinks === false ? null : this.#select("thinking", "Thinking", THINKING),
        );
    }

    #samplingPart() {
        const given = this.link.props?.default_generation_settings?.params ?? {};
        const rows = NUMBERS.map(([key, label, field, min, max, step, hint]) =>
            this.#slider({ key, label, min, max, step, hint, given: given[field] }),
        );
        const reset = h("button", {
            type: "button",
            class: "link-button",
            text: "Leave everything to the server",
        });
        reset.addEventListener("click", () => {
            for (const [key] of NUMBERS) this.settings.set(key, null);
            for (const key of ["seed", "maxTokens"]) this.settings.set(key, null);
            this.settings.set("stop", "");
            reset.blur();
            this.draw();
        });
        const stop = h("textarea", {
            rows: "1",
            placeholder: "None",
            props: { value: this.settings.get("stop") },
        });
        stop.addEventListener("change", () => this.settings.set("stop", stop.value));
        return section(
            "Sampling",
            rows,
            this.#number("maxTokens", "Longest answer", "until its end", "Tokens, thinking included."),
            this.#number("seed", "Seed", "random", "The same seed gives the same answer."),
            h("label", { class: "field" }, h("span", { text: "Stop at, one to a line" }), stop),
            reset,
        );
    }

    #pagePart() {
        const theme = h("div", { class: "segments", role: "radiogroup", "aria-label": "Colours" });
        for (const [value, label] of THEMES) {
            const input = h("input", {
                type: "radio",
                name: "theme",
                value,
                props: { checked: this.settings.get("theme") === value },
            });
            input.addEventListener("change", () => this.settings.set("theme", value));
            theme.append(h("label", {}, input, h("span", { text: label })));
        }
        return section(
            "Page",
            theme,
            this.#check("enterSends", "Enter sends"),
            this.#check("showStats", "Show tokens and speed below answers"),
            actionButton("keyboard", "Keyboard shortcuts", () => this.actions.shortcuts()),
        );
    }

    #dataPart() {
        const picker = h("input", { type: "file", accept: ".json,application/json", hidden: true });
        picker.addEventListener("change", () => {
            if (picker.files[0]) this.actions.readFile(picker.files[0]);
            picker.value = "";
        });
        return section(
            "Data",
            picker,
            actionButton("key", this.keys.get() ? "Change the API key" : "Enter an API key", () =>
                this.actions.changeKey(),
            ),
            actionButton("download", "Save all conversations to a file", () => this.actions.saveAll()),
            actionButton("upload", "Read conversations from a file", () => picker.click()),
            actionButton("trash", "Delete all conversations", () => this.actions.removeAll(), "danger"),
        );
    }

    #select(key, label, options) {
        const select = h(
            "select",
            {},
            options.map(([value, text]) => h("option", { value, text })),
        );
        select.value = this.settings.get(key);
        if (select.selectedIndex < 0) select.selectedIndex = 0;
        select.addEventListener("change", () => this.settings.set(key, select.value));
        return h("label", { class: "field" }, h("span", { text: label }), select);
    }

    #check(key, label) {
        const input = h("input", { type: "checkbox", props: { checked: this.settings.get(key) } });
        input.addEventListener("change", () => this.settings.set(key, input.checked));
        return h("label", { class: "check" }, input, label);
    }

    #number(key, label, placeholder, hint) {
        const input = h("input", {
            type: "number",
            min: key === "maxTokens" ? 1 : 0,
            step: 1,
            placeholder,
            inputmode: "numeric",
            props: { value: this.settings.get(key) ?? "" },
        });
        input.addEventListener("change", () =>
            this.#take(key, input, { min: key === "maxTokens" ? 1 : 0, max: 2 ** 32 - 1, whole: true }),
        );
        return h("label", { class: "line-field", title: hint }, h("span", { text: label }), input);
    }

    /** Empty leaves it to the server; a number is kept within its bounds. */
    #take(key, input, { min, max, whole }) {
        const value = input.value.trim() === "" ? NaN : Number(input.value);
        const bounded = Number.isFinite(value)
            ? Math.min(max, Math.max(min, whole ? Math.round(value) : value))
            : null;
        input.value = bounded ?? "";
        this.settings.set(key, bounded);
        return bounded;
    }

    #slider({ key, label, min, max, step, hint, given }) {
        const known = Number.isFinite(given) ? Number(given.toFixed(4)) : null;
        const neutral = key === "repeatPenalty" ? 1 : Math.max(0, min);
        const value = this.settings.get(key);
        const number = h("input", {
            type: "number",
            min,
            max,
            step,
            placeholder: known ?? "server",
            inputmode: "decimal",
            "aria-label": label,
            props: { value: value ?? "" },
        });
        const range = h("input", {
            type: "range",
            min,
            max,
            step,
            "aria-label": `${label}, slider`,
            props: { value: value ?? known ?? neutral },
        });
        const row = h("div", { class: "slider", title: hint }, h("span", { text: label }), range, number);
        row.classList.toggle("set", value !== null);
        range.addEventListener("input", () => {
            number.value = range.value;
            this.settings.set(key, Number(range.value));
            row.classList.add("set");
        });
        number.addEventListener("change", () => {
            const taken = this.#take(key, number, { min, max, whole: step === 1 });
            range.value = taken ?? known ?? neutral;
            row.classList.toggle("set", taken !== null);
        });
        return row;
    }
}

function section(title, ...kids) {
    return h("section", { class: "panel-section" }, h("h3", { text: title }), kids);
}

function actionButton(name, label, click, kind = "") {
    return h("button", { type: "button", class: `action ${kind}`, on: { click } }, icon(name), label);
}
