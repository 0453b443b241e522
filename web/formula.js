/* Formulas: the part of TeX that models write -> a tree of MathML, which browsers draw by themselves.
 *
 *     {tag: "mfrac", kids: [..]}   {tag: "mi", text: "x", attributes?: {..}}
 *
 * Nothing is guessed: a command that is not in the tables makes the whole formula null, and its source is
 * shown instead. Pure; markdown_view.js makes the elements. Depth and length are bounded. */

const MAX_DEPTH = 40;
const MAX_LENGTH = 4000;

const words = (text) => text.trim().split(/\s+/);
const table = (text) => new Map(words(text).map((pair) => pair.split("=")));

const LETTERS = table(`
    alpha=α beta=β gamma=γ delta=δ epsilon=ϵ varepsilon=ε zeta=ζ eta=η theta=θ vartheta=ϑ iota=ι kappa=κ
    lambda=λ mu=μ nu=ν xi=ξ pi=π varpi=ϖ rho=ρ varrho=ϱ sigma=σ varsigma=ς tau=τ upsilon=υ phi=ϕ varphi=φ
    chi=χ psi=ψ omega=ω Gamma=Γ Delta=Δ Theta=Θ Lambda=Λ Xi=Ξ Pi=Π Sigma=Σ Upsilon=Υ Phi=Φ Psi=Ψ Omega=Ω
    infty=∞ partial=∂ nabla=∇ hbar=ℏ ell=ℓ Re=ℜ Im=ℑ aleph=ℵ emptyset=∅ varnothing=∅ degree=° angle=∠
    triangle=△ top=⊤ bot=⊥ imath=ı jmath=ȷ`);
const OPERATORS = table(`
    cdot=⋅ times=× div=÷ pm=± mp=∓ ast=∗ star=⋆ circ=∘ bullet=∙ oplus=⊕ ominus=⊖ otimes=⊗ odot=⊙ wedge=∧
    vee=∨ land=∧ lor=∨ lnot=¬ neg=¬ cap=∩ cup=∪ setminus=∖ in=∈ notin=∉ ni=∋ subset=⊂ supset=⊃ subseteq=⊆
    supseteq=⊇ le=≤ leq=≤ ge=≥ geq=≥ ll=≪ gg=≫ ne=≠ neq=≠ equiv=≡ approx=≈ sim=∼ simeq=≃ cong=≅ propto=∝
    doteq=≐ coloneqq=≔ to=→ rightarrow=→ leftarrow=← leftrightarrow=↔ Rightarrow=⇒ Leftarrow=⇐
    Leftrightarrow=⇔ implies=⟹ iff=⟺ longrightarrow=⟶ mapsto=↦ uparrow=↑ downarrow=↓ forall=∀ exists=∃
    nexists=∄ therefore=∴ because=∵ mid=∣ parallel=∥ perp=⟂ vdash=⊢ models=⊨ ldots=… dots=… cdots=⋯
    vdots=⋮ ddots=⋱ colon=: prime=′ dagger=† langle=⟨ rangle=⟩ lfloor=⌊ rfloor=⌋ lceil=⌈ rceil=⌉ lvert=|
    rvert=| lVert=‖ rVert=‖ vert=| Vert=‖ {={ }=} |=‖ %=% #=# &=& _=_ $=$`);
const LARGE = table(`
    sum=∑ prod=∏ coprod=∐ int=∫ iint=∬ iiint=∭ oint=∮ bigcup=⋃ bigcap=⋂ bigoplus=⨁ bigotimes=⨂ bigvee=⋁
    bigwedge=⋀`);
const FUNCTIONS = new Set(
    words(`
        sin cos tan cot sec csc arcsin arccos arctan sinh cosh tanh log ln lg exp det dim ker deg
        gcd arg hom Pr lim limsup liminf max min sup inf argmax argmin`),
);
const BELOW = new Set(words("lim limsup liminf max min sup inf argmax argmin")); // their index stands below
const ACCENTS = table("hat=^ widehat=^ bar=¯ overline=¯ vec=→ dot=˙ ddot=¨ tilde=~ widetilde=~ underline=_");
const SPACES = {
    ",": "0.17em",
    ":": "0.22em",
    ";": "0.28em",
    "!": "-0.17em",
    " ": "0.25em",
    quad: "1em",
    qquad: "2em",
};
const FONTS = {
    mathrm: "normal",
    mathbf: "bold",
    boldsymbol: "bold",
    mathit: "italic",
    mathsf: "sans",
    mathtt: "mono",
};
const ENVIRONMENTS = {
    matrix: ["", ""],
    pmatrix: ["(", ")"],
    bmatrix: ["[", "]"],
    vmatrix: ["|", "|"],
    cases: ["{", ""],
    aligned: ["", ""],
    align: ["", ""],
    gathered: ["", ""],
    array: ["", ""],
};
const DOUBLE = { C: "ℂ", H: "ℍ", N: "ℕ", P: "ℙ", Q: "ℚ", R: "ℝ", Z: "ℤ", E: "𝔼", F: "𝔽", 1: "𝟙" };
const SCRIPT_BASE = 0x1d49c; // mathematical script capitals
const SCRIPT = { B: "ℬ", E: "ℰ", F: "ℱ", H: "ℋ", I: "ℐ", L: "ℒ", M: "ℳ", R: "ℛ" };

const node = (tag, kids, attributes) => ({ tag, kids, attributes });
const leaf = (tag, text, attributes) => ({ tag, text, attributes });
const row = (kids) => (kids.length === 1 ? kids[0] : node("mrow", kids));
const fence = (text) => leaf("mo", text, { fence: "true", stretchy: "true" });

class Unknown extends Error {}

/** The tree of a formula, or null when something in it is not known here. */
export function formulaTree(source, display = false) {
    if (source.length > MAX_LENGTH) return null;
    try {
        const reader = new Reader(source);
        const kids = reader.list(() => reader.at >= reader.tokens.length);
        return node("math", [row(kids)], display ? { display: "block" } : {});
    } catch (error) {
        if (error instanceof Unknown) return null;
        throw error;
    }
}

class Reader {
    constructor(source) {
        // A command, a number, or a single character; blanks say nothing.
        this.tokens = source.match(/\\[A-Za-z]+\*?|\\[^]|\d+(?:\.\d+)?|\s+|[^]/gu) ?? [];
        this.at = 0;
        this.depth = 0;
    }

    skip() {
        while (/^\s/.test(this.tokens[this.at] ?? "")) this.at += 1;
    }

    peek() {
        this.skip();
        return this.tokens[this.at];
    }

    next() {
        const token = this.peek();
        if (token === undefined) throw new Unknown("the end");
        this.at += 1;
        return token;
    }

    expect(token) {
        if (this.next() !== token) throw new Unknown(token);
    }

    /** Everything up to where `ends` says, each with its index and exponent. */
    list(ends) {
        this.depth += 1;
        if (this.depth > MAX_DEPTH) throw new Unknown("too deep");
        const kids = [];
        for (this.skip(); !ends(); this.skip()) {
            if (this.at >= this.tokens.length) throw new Unknown("the end");
            kids.push(this.scripts(this.atom()));
        }
        this.depth -= 1;
        return kids;
    }

    /** An argument: a group or one atom. */
    argument() {
        const token = this.peek();
        if (token === "{") return this.group();
        // As in TeX a bare argument is one digit: \frac12 is a half.
        if (/^\d./.test(token ?? "")) this.tokens.splice(this.at, 1, token[0], token.slice(1));
        return this.atom();
    }

    group() {
        this.expect("{");
        const kids = this.list(() => this.peek() === "}");
        this.expect("}");
        return row(kids);
    }

    /** The words of {..}, as they are. */
    plain() {
        this.expect("{");
        let text = "";
        for (let depth = 0; depth > 0 || this.tokens[this.at] !== "}"; this.at++) {
            const token = this.tokens[this.at];
            if (token === undefined) throw new Unknown("the end");
            depth += token === "{" ? 1 : token === "}" ? -1 : 0;
            text += /^\\[^A-Za-z]/.test(token) ? token.slice(1) : token;
        }
        this.at += 1;
        return text;
    }

    scripts(base) {
        let sub = null;
        let sup = null;
        for (;;) {
            const token = this.peek();
            if (token === "_" && !sub) sub = (this.next(), this.argument());
            else if (token === "^" && !sup) sup = (this.next(), this.argument());
            else if (token === "'" && !sup) sup = this.primes();
            else if (token === "_" || token === "^") throw new Unknown("twice");
            else break;
        }
        if (!sub && !sup) return base;
        const below = base.limits === true;
        const names = below ? ["munder", "mover", "munderover"] : ["msub", "msup", "msubsup"];
        if (sub && sup) return node(names[2], [base, sub, sup]);
        return sub ? node(names[0], [base, sub]) : node(names[1], [base, sup]);
    }

    primes() {
        let text = "";
        while (this.peek() === "'") text += (this.next(), "′");
        return leaf("mo", text);
    }

    atom() {
        const token = this.next();
        if (token === "{") {
            this.at -= 1;
            return this.group();
        }
        if (token.startsWith("\\")) return this.command(token.slice(1));
        if (/^\d/.test(token)) return leaf("mn", token);
        if (/^\p{L}$/u.test(token)) return leaf("mi", token);
        if (token === "-") return leaf("mo", "−");
        if (token === "~") return leaf("mspace", "", { width: "0.25em" });
        if (/^[+*/=<>()[\]|,;:.!?"@`]$/.test(token)) return leaf("mo", token, { stretchy: "false" });
        if (/^[\p{S}\p{P}]$/u.test(token) && !"{}&$%#\\".includes(token)) return leaf("mo", token);
        throw new Unknown(token);
    }

    command(name) {
        if (LETTERS.has(name)) return leaf("mi", LETTERS.get(name));
        if (OPERATORS.has(name)) return leaf("mo", OPERATORS.get(name), { stretchy: "false" });
        if (LARGE.has(name)) {
            const limits = !name.includes("int");
            return { ...leaf("mo", LARGE.get(name), { largeop: "true", movablelimits: "true" }), limits };
        }
        if (FUNCTIONS.has(name)) {
            return { ...leaf("mi", name, { mathvariant: "normal" }), limits: BELOW.has(name) };
        }
        if (Object.hasOwn(SPACES, name)) return leaf("mspace", "", { width: SPACES[name] });
        if (ACCENTS.has(name)) return this.accent(name);
        if (Object.hasOwn(FONTS, name))
            return { ...node("mrow", [this.argument()]), attributes: { class: `math-${FONTS[name]}` } };
        if (!Object.hasOwn(COMMANDS, name)) throw new Unknown(name);
        return COMMANDS[name](this);
    }

    accent(name) {
        const under = name === "underline";
        const base = this.argument();
        const mark = leaf("mo", ACCENTS.get(name), { stretchy: String(/wide|line/.test(name)) });
        return node(under ? "munder" : "mover", [base, mark], { accent: "true" });
    }

    /** \left( .. \right): brackets that grow. */
    fenced() {
        const open = this.delimiter();
        const kids = this.list(() => this.peek() === "\\right");
        this.expect("\\right");
        const close = this.delimiter();
        return node("mrow", [...(open ? [fence(open)] : []), ...kids, ...(close ? [fence(close)] : [])]);
    }

    delimiter() {
        const token = this.next();
        if (token === ".") return "";
        if (/^[()[\]|/<>]$/.test(token)) return { "<": "⟨", ">": "⟩" }[token] ?? token;
        const known = token.startsWith("\\") && OPERATORS.get(token.slice(1));
        if (!known) throw new Unknown(token);
        return known;
    }

    environment() {
        const name = this.plain().replace(/\*$/, "");
        if (!Object.hasOwn(ENVIRONMENTS, name)) throw new Unknown(name);
        if (name === "array") this.plain();
        const rows = [[]];
        for (let cell = []; ; cell = []) {
            cell.push(...this.list(() => ["&", "\\\\", "\\end"].includes(this.peek())));
            rows[rows.length - 1].push(row(cell));
            const token = this.next();
            if (token === "\\\\") rows.push([]);
            if (token === "\\end") break;
        }
        if (this.plain().replace(/\*$/, "") !== name) throw new Unknown(name);
        return this.grid(name, rows);
    }

    grid(name, rows) {
        const last = rows[rows.length - 1];
        if (rows.length > 1 && last.length === 1 && last[0].tag === "mrow" && last[0].kids.length === 0)
            rows.pop();
        const cells = rows.map((r) =>
            node(
                "mtr",
                r.map((cell) => node("mtd", [cell])),
            ),
        );
        const align = /align/.test(name) ? "math-align" : name === "cases" ? "math-cases" : "";
        const grid = node("mtable", cells, align ? { class: align } : {});
        const [open, close] = ENVIRONMENTS[name];
        return node("mrow", [...(open ? [fence(open)] : []), grid, ...(close ? [fence(close)] : [])]);
    }
}

const fraction = (r) => node("mfrac", [r.argument(), r.argument()]);

/** A sign and a line above, instead of msqrt: without a font for mathematics a browser leaves its sign out.
 *  */
function root(inside, degree = null) {
    const sign = leaf("mo", "√", { form: "prefix", stretchy: "false", lspace: "0", rspace: "0" });
    const before = degree ? [node("msup", [leaf("mspace", "", { width: "0.1em" }), degree])] : [];
    return node("mrow", [...before, sign, node("mrow", [inside], { class: "math-root" })]);
}

const COMMANDS = {
    frac: fraction,
    dfrac: fraction,
    tfrac: fraction,
    cfrac: fraction,
    binom: (r) =>
        node("mrow", [
            fence("("),
            node("mfrac", [r.argument(), r.argument()], { linethickness: "0" }),
            fence(")"),
        ]),
    sqrt: (r) => {
        if (r.peek() !== "[") return root(r.argument());
        r.next();
        const degree = row(r.list(() => r.peek() === "]"));
        r.expect("]");
        return root(r.argument(), degree);
    },
    text: (r) => leaf("mtext", r.plain()),
    textbf: (r) => leaf("mtext", r.plain(), { class: "math-bold" }),
    operatorname: (r) => leaf("mi", r.plain(), { mathvariant: "normal" }),
    mathbb: (r) => {
        const text = r.plain();
        if (!Object.hasOwn(DOUBLE, text)) throw new Unknown(text);
        return leaf("mi", DOUBLE[text], { mathvariant: "normal" });
    },
    mathcal: (r) => {
        const text = r.plain();
        if (!/^[A-Z]$/.test(text)) throw new Unknown(text);
        return leaf("mi", SCRIPT[text] ?? String.fromCodePoint(SCRIPT_BASE + text.charCodeAt(0) - 65));
    },
    boxed: (r) => node("mrow", [r.argument()], { class: "math-box" }),
    left: (r) => r.fenced(),
    begin: (r) => r.environment(),
    displaystyle: () => node("mrow", []),
    limits: () => node("mrow", []),
    pmod: (r) =>
        node("mrow", [
            leaf("mo", "("),
            leaf("mi", "mod", { mathvariant: "normal" }),
            leaf("mspace", "", { width: "0.3em" }),
            r.argument(),
            leaf("mo", ")"),
        ]),
    bmod: () => leaf("mo", "mod"),
    overset: (r) => {
        const over = r.argument();
        return node("mover", [r.argument(), over]);
    },
    underset: (r) => {
        const under = r.argument();
        return node("munder", [r.argument(), under]);
    },
    not: (r) => {
        const base = r.atom();
        if (base.tag !== "mo") throw new Unknown("not");
        return leaf("mo", `${base.text}\u0338`);
    },
};
for (const name of ["big", "Big", "bigg", "Bigg", "bigl", "bigr", "Bigl", "Bigr"]) {
    COMMANDS[name] = (r) => leaf("mo", r.delimiter(), { stretchy: "false" });
}
