/* Conversations kept in this browser: IndexedDB, or memory where a browser forbids that (`lasting` says
 * which).
 *
 * A record is a whole conversation (conversation.js); beside it lies its line of the list, so that the list
 * can be shown without reading every word. Writes of one conversation are joined: while an answer streams,
 * `later` writes at most every SAVE_MS, and `flush` at once. A failed write is told through `onError`, never
 * swallowed.
 *
 * A backend has list(), get(id), put(talk, line), remove(id); all promises. */

import { checkConversation } from "./conversation.js";

const SAVE_MS = 400;
const NAME = "mica";

/** What the list of conversations shows of one. */
export function lineOf(talk) {
    return { id: talk.id, title: talk.title, created: talk.created, updated: talk.updated };
}

export class MemoryBackend {
    #talks = new Map();
    lasting = false;

    async list() {
        return [...this.#talks.values()].map(({ line }) => line);
    }

    async get(id) {
        const found = this.#talks.get(id);
        return found ? structuredClone(found.talk) : null;
    }

    async put(talk, line) {
        this.#talks.set(talk.id, { talk: structuredClone(talk), line });
    }

    async remove(id) {
        this.#talks.delete(id);
    }
}

const done = (request) =>
    new Promise((resolve, reject) => {
        request.onsuccess = () => resolve(request.result);
        request.onerror = () => reject(request.error);
    });

const finished = (transaction) =>
    new Promise((resolve, reject) => {
        transaction.oncomplete = () => resolve();
        transaction.onabort = () => reject(transaction.error ?? new Error("the browser took the write back"));
    });

export class DatabaseBackend {
    lasting = true;

    constructor(database) {
        this.database = database;
    }

    static async open(factory = globalThis.indexedDB) {
        const request = factory.open(NAME, 1);
        request.onupgradeneeded = () => {
            request.result.createObjectStore("talks", { keyPath: "id" });
            request.result.createObjectStore("lines", { keyPath: "id" });
        };
        const database = await done(request);
        // Another tab with a newer page wants to change the layout: let it.
        database.onversionchange = () => database.close();
        return new DatabaseBackend(database);
    }

    list() {
        return done(this.database.transaction("lines").objectStore("lines").getAll());
    }

    async get(id) {
        return (await done(this.database.transaction("talks").objectStore("talks").get(id))) ?? null;
    }

    #write(change) {
        const transaction = this.database.transaction(["talks", "lines"], "readwrite");
        change(transaction.objectStore("talks"), transaction.objectStore("lines"));
        return finished(transaction);
    }

    put(talk, line) {
        return this.#write((talks, lines) => {
            talks.put(talk);
            lines.put(line);
        });
    }

    remove(id) {
        return this.#write((talks, lines) => {
            talks.delete(id);
            lines.delete(id);
        });
    }
}

/** The store of this browser; never fails: without a database the conversations last as long as the page. */
export async function openStore(onError, onChange = () => {}) {
    let backend;
    try {
        backend = await DatabaseBackend.open();
    } catch {
        backend = new MemoryBackend();
    }
    return new Store(backend, onError, onChange);
}

export class Store {
    #backend;
    #waiting = new Map(); // id -> {talk, timer}
    #chain = Promise.resolve(); // writes one after another, in the order they were asked for

    constructor(backend, onError = () => {}, onChange = () => {}) {
        this.#backend = backend;
        this.onError = onError;
        this.onChange = onChange; // (id): told after a write, for other tabs
    }

    get lasting() {
        return this.#backend.lasting;
    }

    /** Lines of the list, the last used first. */
    async list() {
        const lines = await this.#backend.list();
        return lines.sort((a, b) => b.updated - a.updated);
    }

    /** A conversation made whole, or null. */
    async get(id) {
        const value = await this.#backend.get(id);
        return value ? checkConversation(value) : null;
    }

    /** Writes soon; calls in between are joined. */
    later(talk) {
        if (this.#waiting.has(talk.id)) return;
        const timer = setTimeout(() => this.save(talk, true), SAVE_MS);
        this.#waiting.set(talk.id, { talk, timer });
    }

    /** Writes now; the promise is kept when it is done, also when it failed (onError has been told). A quiet
     *  write is not told to others: it is one of many while an answer grows. */
    save(talk, quiet = false) {
        this.#forget(talk.id);
        const line = lineOf(talk);
        const copy = structuredClone(talk);
        return this.#queue(() => this.#backend.put(copy, line), quiet ? null : talk.id);
    }

    remove(id) {
        this.#forget(id);
        return this.#queue(() => this.#backend.remove(id), id);
    }

    /** Writes all that waits. */
    flush() {
        return Promise.all([...this.#waiting.values()].map(({ talk }) => this.save(talk)));
    }

    async all() {
        const lines = await this.list();
        const talks = await Promise.all(lines.map(({ id }) => this.get(id)));
        return talks.filter(Boolean);
    }

    #forget(id) {
        clearTimeout(this.#waiting.get(id)?.timer);
        this.#waiting.delete(id);
    }

    #queue(work, told) {
        this.#chain = this.#chain.then(work).then(
            () => told && this.onChange(told),
            (error) => this.onError(error),
        );
        return this.#chain;
    }
}
