/* What this browser remembers besides conversations: the settings and the key. */

const SETTINGS = "mica.settings";
const KEY = "mica.key";

/** Every setting with what it is when nothing was chosen; null leaves the choice to the server. */
export const DEFAULTS = {
    system: "",
    model: "",
    thinking: "",
    temperature: null,
    topK: null,
    topP: null,
    minP: null,
    repeatPenalty: null,
    presencePenalty: null,
    frequencyPenalty: null,
    seed: null,
    maxTokens: null,
    stop: "",
    theme: "auto",
    enterSends: true,
    showStats: true,
    sideClosed: false,
};

/** A browser may forbid storage; then a choice lasts as long as the page. */
function read(storage, name) {
    try {
        return globalThis[storage].getItem(name);
    } catch {
        return null;
    }
}

function write(storage, name, value) {
    try {
        if (value === null) globalThis[storage].removeItem(name);
        else globalThis[storage].setItem(name, value);
    } catch {
        // forbidden or full: the value stays in memory
    }
}

export class Settings extends EventTarget {
    constructor() {
        super();
        this.values = { ...DEFAULTS };
        try {
            const stored = JSON.parse(read("localStorage", SETTINGS) ?? "{}");
            for (const key of Object.keys(DEFAULTS))
                if (fits(key, stored[key])) this.values[key] = stored[key];
        } catch {
            // not ours: the defaults stand
        }
    }

    get(key) {
        return this.values[key];
    }

    set(key, value) {
        if (this.values[key] === value) return;
        this.values[key] = value;
        write("localStorage", SETTINGS, JSON.stringify(this.values));
        this.dispatchEvent(new CustomEvent("change", { detail: { key, value } }));
    }
}

/** Whether a stored value is of the kind its default is. */
function fits(key, value) {
    return DEFAULTS[key] === null
        ? value === null || Number.isFinite(value)
        : typeof value === typeof DEFAULTS[key];
}

/** The key: for this tab, or kept in this browser when its owner said so. */
export class Keys {
    constructor() {
        this.key = read("sessionStorage", KEY) ?? read("localStorage", KEY) ?? "";
    }

    get() {
        return this.key;
    }

    get kept() {
        return read("localStorage", KEY) !== null;
    }

    set(key, keep) {
        this.key = key;
        write("sessionStorage", KEY, key || null);
        write("localStorage", KEY, keep && key ? key : null);
    }
}
