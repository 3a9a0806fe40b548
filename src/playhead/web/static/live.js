// Live rows: the server names each new answer, and htmx fetches the part of the page that changes.
"use strict";
(() => {
  const live = document.getElementById("live");
  const lamp = document.getElementById("lamp");
  if (!live || !window.EventSource || !window.htmx) return;
  const source = new EventSource(live.dataset.events);
  source.addEventListener("seen", () => {
    if (lamp) { lamp.textContent = "live"; lamp.className = "pill ok"; }
    const busy = live.contains(document.activeElement) && document.activeElement.matches("input, select, textarea");
    if (!busy && !live.querySelector("details[open]")) window.htmx.trigger(live, "seen");
  });
  source.addEventListener("error", () => {
    if (lamp) { lamp.textContent = "server away"; lamp.className = "pill wrong"; }
  });
})();
