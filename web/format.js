/* Numbers as people read them. Pure functions; one place, so that a byte is a byte everywhere on the page. */

const BYTE_UNITS = ["B", "KiB", "MiB", "GiB", "TiB"];

/** 1536 -> "1.5 KiB": three significant digits, binary units as the program itself prints them. */
export function bytes(n) {
    if (!Number.isFinite(n)) return "–";
    let unit = 0;
    while (Math.abs(n) >= 1024 && unit < BYTE_UNITS.length - 1) {
        n /= 1024;
        unit += 1;
    }
    const digits = unit === 0 || n >= 100 ? 0 : n >= 10 ? 1 : 2;
    return `${n.toFixed(digits)} ${BYTE_UNITS[unit]}`;
}

/** 12345 -> "12,345". */
export function count(n) {
    if (!Number.isFinite(n)) return "–";
    return Math.round(n)
        .toString()
        .replace(/\B(?=(\d{3})+$)/g, ",");
}

/** 1234567 -> "1.23M": for narrow places. */
export function short(n) {
    if (!Number.isFinite(n)) return "–";
    for (const [limit, letter] of [
        [1e12, "T"],
        [1e9, "B"],
        [1e6, "M"],
        [1e4, "k"],
    ]) {
        if (n >= limit) {
            const value = letter === "k" ? n / 1e3 : n / limit;
            return `${value.toFixed(value >= 100 ? 0 : value >= 10 ? 1 : 2)}${letter}`;
        }
    }
    return count(n);
}

/** Tokens a second, or any rate: "0.42", "7.31", "45.2", "812". */
export function rate(n) {
    if (!Number.isFinite(n)) return "–";
    if (n === 0) return "0";
    return n >= 100 ? count(n) : n >= 10 ? n.toFixed(1) : n.toFixed(2);
}

/** 0.931 -> "93.1 %". */
export function percent(share) {
    if (!Number.isFinite(share)) return "–";
    const value = share * 100;
    return `${value.toFixed(value >= 99.95 || value === 0 ? 0 : 1)} %`;
}

/** Milliseconds: "84 ms", "3.2 s", "2 min 05 s", "3 h 12 min". */
export function duration(ms) {
    if (!Number.isFinite(ms)) return "–";
    if (ms < 1000) return `${Math.round(ms)} ms`;
    if (ms < 59950) return `${(ms / 1000).toFixed(1)} s`;
    const seconds = Math.round(ms / 1000);
    const two = (n) => String(n).padStart(2, "0");
    if (seconds < 3600) return `${Math.floor(seconds / 60)} min ${two(seconds % 60)} s`;
    const minutes = Math.round(seconds / 60);
    return `${Math.floor(minutes / 60)} h ${two(minutes % 60)} min`;
}

const DAY_MS = 86400000;

/** The heading a conversation stands under in the list: Today, Yesterday, Last 7 days, then its month. */
export function dayGroup(time, now = Date.now()) {
    const midnight = new Date(now).setHours(0, 0, 0, 0);
    if (time >= midnight) return "Today";
    if (time >= midnight - DAY_MS) return "Yesterday";
    if (time >= midnight - 7 * DAY_MS) return "Last 7 days";
    return new Date(time).toLocaleDateString("en", { month: "long", year: "numeric" });
}

/** "14:03:59" in the reader's zone. */
export function clock(time) {
    return new Date(time).toTimeString().slice(0, 8);
}
