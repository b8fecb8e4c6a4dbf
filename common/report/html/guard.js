// Runs first: whatever goes wrong later is said on the page, and marked for tests as data-error.
"use strict";
(function () {
  function report(message) {
    document.documentElement.dataset.error = message;
    const box = document.getElementById("page-error");
    if (box) {
      box.textContent = "Part of this page could not be drawn: " + message;
      box.hidden = false;
    }
  }
  window.addEventListener("error", (event) => report(event.message || "a script failed"));
  window.addEventListener("unhandledrejection", (event) => report(String(event.reason)));
  document.addEventListener("securitypolicyviolation", (event) =>
    report("blocked " + event.violatedDirective + " " + event.blockedURI),
  );
})();
