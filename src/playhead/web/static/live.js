// Live rows: the server names each new answer, and htmx fetches the part of the page that changes.
"use strict";
(() => {
  const live = document.getElementById("live");
  const lamp = document.getElementById("lamp");
  const age = document.getElementById("age");
  if (!live || !lamp || !window.EventSource || !window.htmx) return;
  let seen = 0;
  const show = (text, level) => { lamp.textContent = text; lamp.className = "pill " + level; };
  const source = new EventSource(live.dataset.events);
  source.addEventListener("seen", () => {
    seen = Date.now();
    show("live", "ok");
    const busy = live.contains(document.activeElement) && document.activeElement.matches("input, select, textarea");
    if (!busy && !live.querySelector("details[open]")) window.htmx.trigger(live, "seen");
  });
  source.addEventListener("error", () => show("server away", "wrong"));
  setInterval(() => {
    if (seen && age) age.textContent = Math.round((Date.now() - seen) / 1000) + " s ago";
  }, 1000);
})();
