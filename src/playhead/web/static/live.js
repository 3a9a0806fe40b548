// Live rows: the server names each new answer, and htmx fetches the part of the page that changes. The lamp says what is true of
// the page: `live` only while its newest part was fetched, and else since when it was not.
"use strict";
(() => {
  const live = () => document.getElementById("live");
  const lamp = document.getElementById("lamp");
  const age = document.getElementById("age");
  if (!live() || !lamp || !age || !window.EventSource || !window.htmx) return;
  const isWhole = live().dataset.scope === "whole";
  const asFetched = isWhole ? ["live", "ok"] : ["as loaded", "attention"];  // else its tables stay as they were loaded
  let fetched = Date.now();
  let owed = false;
  let over = false;
  const show = (text, level) => {
    if (lamp.textContent !== text) lamp.textContent = text;
    lamp.className = "pill " + level;
  };
  const since = () => new Date(fetched).toLocaleTimeString();
  const fault = (text) => show("not renewed since " + since() + ": " + text, "wrong");
  // A form that is filled in, or a trace that is read, is not replaced under the reader.
  const held = () => {
    const at = document.activeElement;
    if (live().contains(at) && at.matches("input, select, textarea")) return "while a field is in use";
    return live().querySelector("details[open]") ? "while a part is open" : "";
  };
  const renew = () => {
    if (over) return;
    const why = held();
    owed = why !== "";
    if (why) show("as of " + since() + ", " + why, "attention");
    else window.htmx.trigger(live(), "seen");
  };
  document.addEventListener("htmx:after:request", (event) => {
    const answer = event.detail.ctx && event.detail.ctx.response;
    if (over || !answer) return;
    if (answer.status === 200) {
      if (isWhole) fetched = Date.now();
      show(...asFetched);
    } else if (answer.status === 401) {
      end();
    } else {
      fault(event.detail.ctx.text || "status " + answer.status);
    }
  });
  document.addEventListener("htmx:error", () => { if (!over) fault("the server does not answer"); });
  const resume = () => setTimeout(() => { if (owed && !held()) renew(); }, 0);
  document.addEventListener("focusout", resume);
  document.addEventListener("toggle", resume, true);
  const source = new EventSource(live().dataset.events);
  const end = () => {
    over = true;
    source.close();
    show("logged out, as of " + since(), "wrong");
  };
  source.addEventListener("seen", renew);
  source.addEventListener("over", end);
  source.addEventListener("error", () => {
    if (!over) fault(source.readyState === EventSource.CLOSED ? "the server sends no news" : "the server is away");
  });
  setInterval(() => { age.textContent = Math.round((Date.now() - fetched) / 1000) + " s ago"; }, 1000);
})();
