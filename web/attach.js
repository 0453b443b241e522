/* Text files that go along with a message. Only text is taken, and it is said why something is not. */

import { bytes } from "./format.js";

export const MAX_FILE_BYTES = 2 * 1024 * 1024;

/** The text of a file's bytes; throws an Error with a sentence when it is no text. Pure. */
export function textOf(name, data) {
    if (data.length > MAX_FILE_BYTES) {
        throw new Error(`${name}: ${bytes(data.length)} are more than the ${bytes(MAX_FILE_BYTES)} that fit`);
    }
    let decoder = new TextDecoder("utf-8", { fatal: true });
    if (data[0] === 0xff && data[1] === 0xfe) decoder = new TextDecoder("utf-16le", { fatal: true });
    if (data[0] === 0xfe && data[1] === 0xff) decoder = new TextDecoder("utf-16be", { fatal: true });
    let text;
    try {
        text = decoder.decode(data);
    } catch {
        throw new Error(`${name}: this is no text file`);
    }
    if (text.includes("\0")) throw new Error(`${name}: this is no text file`);
    return text.replace(/\r\n?/g, "\n");
}

/** {files: [{name, text}], errors: [sentence]} of what a person chose or dropped. */
export async function readFiles(list) {
    const files = [];
    const errors = [];
    for (const file of list) {
        try {
            if (file.size > MAX_FILE_BYTES)
                throw new Error(
                    `${file.name}: ${bytes(file.size)} are too much; ${bytes(MAX_FILE_BYTES)} fit`,
                );
            files.push({
                name: file.name,
                text: textOf(file.name, new Uint8Array(await file.arrayBuffer())),
            });
        } catch (error) {
            errors.push(error.message);
        }
    }
    return { files, errors };
}
