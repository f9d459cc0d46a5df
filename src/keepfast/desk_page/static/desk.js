// The desk: live updates, theme, keyboard, selection, copying, dialogs. No other script is loaded.
(() => {
  "use strict";

  const $ = (selector, root = document) => root.querySelector(selector);
  const all = (selector, root = document) => [...root.querySelectorAll(selector)];
  const policy = window.trustedTypes
    ? window.trustedTypes.createPolicy("desk", { createHTML: (text) => text })
    : { createHTML: (text) => text };

  // -- theme: the server writes what the cookie says, so that nothing flickers

  const root = document.documentElement;
  document.addEventListener("click", (event) => {
    if (!event.target.closest("[data-theme-switch]")) return;
    const dark = root.dataset.theme
      ? root.dataset.theme === "dark"
      : window.matchMedia("(prefers-color-scheme: dark)").matches;
    root.dataset.theme = dark ? "light" : "dark";
    document.cookie = `keepfast_theme=${root.dataset.theme}; path=/; max-age=31536000; samesite=strict`;
  });

  // -- a link with #token=… logs in; the fragment is never sent to a server

  const login = $("form[data-login]");
  const given = new URLSearchParams(location.hash.slice(1)).get("token");
  if (login && given) {
    history.replaceState(null, "", location.pathname + location.search);
    login.elements.token.value = given;
    login.requestSubmit();
  }

  // -- copying

  document.addEventListener("click", async (event) => {
    const button = event.target.closest("[data-copy]");
    if (!button) return;
    const text = $(button.dataset.copy)?.textContent ?? "";
    try {
      await navigator.clipboard.writeText(text.trim());
      flash(button, "Copied");
    } catch {
      const range = document.createRange();
      range.selectNodeContents($(button.dataset.copy));
      getSelection().removeAllRanges();
      getSelection().addRange(range);
      flash(button, "Press Ctrl+C");
    }
  });

  function flash(button, text) {
    const before = button.textContent;
    button.textContent = text;
    setTimeout(() => { button.textContent = before; }, 1500);
  }

  // -- selection of rows

  function boxes() { return all("input[name=case]"); }

  function selectionChanged() {
    const chosen = boxes().filter((one) => one.checked).length;
    const everything = $("#everything")?.checked ?? false;
    for (const one of all("[data-selection]")) {
      const total = Number(one.dataset.total);
      one.textContent = everything
        ? `All ${total.toLocaleString("en")} that match`
        : chosen ? `${chosen.toLocaleString("en")} selected` : one.dataset.none;
    }
    for (const one of all("[data-needs-selection]")) one.disabled = !(chosen || everything);
    const whole = $("#all-rows");
    if (whole) {
      whole.checked = chosen > 0 && chosen === boxes().length;
      whole.indeterminate = chosen > 0 && chosen < boxes().length;
    }
  }

  document.addEventListener("change", (event) => {
    if (event.target.id === "all-rows") for (const one of boxes()) one.checked = event.target.checked;
    if (event.target.matches("#all-rows, #everything, input[name=case]")) selectionChanged();
    if (event.target.matches("[data-submit-on-change] select")) event.target.form.requestSubmit();
  });

  // -- dialogs

  document.addEventListener("click", (event) => {
    const opener = event.target.closest("[data-dialog]");
    if (opener) $(opener.dataset.dialog)?.showModal();
    if (event.target.closest("[data-close]")) event.target.closest("dialog")?.close();
  });

  document.addEventListener("submit", (event) => {
    const button = event.submitter;
    if (button) setTimeout(() => { button.disabled = true; });
  });
  window.addEventListener("pageshow", () => { for (const one of all("button[type=submit]")) one.disabled = false; selectionChanged(); });

  // -- keyboard

  const places = { f: "/", r: "/runs", d: "/discarded", c: "/consumers", t: "/timeline", a: "/audit", s: "/storage" };
  let pending = false;

  function rows() { return all("[data-row] a, a[data-row]"); }

  function move(step) {
    const links = rows();
    if (!links.length) return;
    const at = links.indexOf(document.activeElement);
    const next = links[Math.min(links.length - 1, Math.max(0, at < 0 ? 0 : at + step))];
    next.focus();
    next.scrollIntoView({ block: "nearest" });
  }

  document.addEventListener("keydown", (event) => {
    if (event.ctrlKey || event.metaKey || event.altKey || $("dialog[open]")) return;
    const typing = event.target.matches("input:not([type=checkbox]):not([type=radio]), textarea, select");
    if (typing) {
      if (event.key === "Escape") event.target.blur();
      return;
    }
    if (pending) {
      pending = false;
      if (places[event.key]) { event.preventDefault(); location.href = places[event.key]; }
      return;
    }
    const actions = {
      g: () => { pending = true; setTimeout(() => { pending = false; }, 1200); },
      j: () => move(1),
      k: () => move(-1),
      x: () => { const box = document.activeElement.closest("tr")?.querySelector("input[name=case]"); if (box) { box.checked = !box.checked; selectionChanged(); } },
      "/": () => $("input[type=search]")?.focus(),
      "?": () => $("#keys")?.showModal(),
    };
    if (actions[event.key]) { event.preventDefault(); actions[event.key](); }
  });

  // -- live: regions with data-live are replaced when the server says that something changed

  const light = $(".live");
  const stream = document.body.dataset.live;
  let stale = false;
  let loading = false;

  function busy() {
    const focused = document.activeElement;
    if (document.hidden || $("dialog[open]")) return true;
    if (focused && focused.matches("input, textarea, select") && focused.type !== "hidden") return true;
    if (boxes().some((one) => one.checked) || $("#everything")?.checked) return true;
    if (all("form[data-hold] input, form[data-hold] textarea").some((one) => one.type === "text" && one.value !== one.defaultValue)) return true;
    const selection = getSelection();
    return Boolean(selection && !selection.isCollapsed && selection.toString().trim());
  }

  function show(state, text) {
    if (!light) return;
    light.dataset.state = state;
    light.textContent = text;
  }

  async function refresh() {
    if (loading) return;
    if (busy()) { stale = true; show("paused", "Paused while you work"); return; }
    loading = true;
    stale = false;
    try {
      const answer = await fetch(location.href, { headers: { "x-desk-live": "1" }, credentials: "same-origin" });
      if (!answer.ok || answer.redirected) throw new Error(String(answer.status));
      const text = await answer.text();
      if (busy()) { stale = true; return; }
      const page = new DOMParser().parseFromString(policy.createHTML(text), "text/html");
      const open = new Set(all("details[open][id]").map((one) => one.id));
      const focused = document.activeElement?.id;
      const at = document.activeElement?.getAttribute?.("href");
      for (const region of all("[data-live]")) {
        if (region === document.body) continue;
        const next = page.getElementById(region.id);
        if (next && next.outerHTML !== region.outerHTML) region.replaceWith(document.adoptNode(next));
      }
      for (const id of open) { const one = document.getElementById(id); if (one) one.open = true; }
      if (focused) document.getElementById(focused)?.focus({ preventScroll: true });
      else if (at && document.activeElement === document.body) rows().find((one) => one.getAttribute("href") === at)?.focus({ preventScroll: true });
      show("live", "Live");
      selectionChanged();
    } catch {
      show("lost", "Not updated");
    } finally {
      loading = false;
    }
  }

  if (stream && window.EventSource) {
    const source = new EventSource(stream);
    source.addEventListener("open", () => show("live", "Live"));
    source.addEventListener("changed", refresh);
    source.addEventListener("error", () => show("lost", "Connecting…"));
    setInterval(() => { if (stale && !busy()) refresh(); else if (!stale && light?.dataset.state === "paused" && !busy()) show("live", "Live"); }, 500);
    window.addEventListener("pagehide", () => source.close());
  }

  selectionChanged();
})();
