/* Light or dark, before the first paint: a plain script in the head, since modules run after it. */
(function () {
    "use strict";
    let theme = null;
    try {
        theme = JSON.parse(localStorage.getItem("mica.settings") ?? "{}").theme;
    } catch {
        theme = null;
    }
    if (theme === "light" || theme === "dark") document.documentElement.dataset.theme = theme;
})();
