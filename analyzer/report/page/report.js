// Adds to a page that is whole without it: sorting, searching, folding of long tables, the choice of theme. Nothing is fetched or kept.
"use strict";
(function () {
  var all = document.querySelector("table.all");
  var status = document.getElementById("status");

  // Each row carries what its columns are sorted by: its place by name first, then numbers, "" where there is no data; that comes last either way.
  function keys(row) {
    if (!row.keys) row.keys = row.getAttribute("data-v").split(",").map(function (text) { return text === "" ? null : Number(text); });
    return row.keys;
  }
  function compare(column, down) {
    return function (a, b) {
      var x = keys(a)[column], y = keys(b)[column], order = keys(a)[0] - keys(b)[0];
      if (x === null || y === null) return (x === null) - (y === null) || order;
      return (down ? y - x : x - y) || order;
    };
  }
  function sortBy(header, column) {
    var down = header.getAttribute("aria-sort") === "descending" ? false : header.getAttribute("aria-sort") === "ascending" ? true : column !== 0;
    var body = all.tBodies[0];
    var rows = Array.prototype.slice.call(body.rows).sort(compare(column, down));
    var piece = document.createDocumentFragment();
    rows.forEach(function (row) { piece.appendChild(row); });
    body.appendChild(piece);
    all.querySelectorAll("th[aria-sort]").forEach(function (other) { other.removeAttribute("aria-sort"); });
    header.setAttribute("aria-sort", down ? "descending" : "ascending");
    status.textContent = "Sorted by " + header.textContent.trim() + (down ? ", largest first" : ", smallest first");
  }

  function search(words, kind) {
    var shown = 0, total = 0;
    Array.prototype.forEach.call(all.tBodies[0].rows, function (row) {
      if (row.words === undefined) row.words = row.cells[0].textContent.toLowerCase();
      var fits = words.every(function (word) { return row.words.indexOf(word) >= 0; });
      fits = fits && (kind === "" || (" " + row.getAttribute("data-f") + " ").indexOf(" " + kind + " ") >= 0);
      row.hidden = !fits;
      total += 1;
      shown += fits ? 1 : 0;
    });
    status.textContent = shown === total ? total + " distributions" : shown + " of " + total + " distributions shown";
  }

  if (all) {
    Array.prototype.forEach.call(all.tHead.rows[0].cells, function (header, index) {
      var column = header.getAttribute("data-c");
      if (column === null) return;
      var button = document.createElement("button");
      button.type = "button";
      while (header.firstChild) button.appendChild(header.firstChild);
      header.appendChild(button);
      button.addEventListener("click", function () { sortBy(header, Number(column)); });
    });
    var box = document.getElementById("search"), kind = document.getElementById("kind");
    var again = function () { search(box.value.toLowerCase().split(/\s+/).filter(Boolean), kind.value); };
    var waiting = 0;
    box.addEventListener("input", function () { clearTimeout(waiting); waiting = setTimeout(again, 80); });
    kind.addEventListener("change", again);
    document.getElementById("tools").hidden = false;
    again();
  }

  // Long tables begin short.
  document.querySelectorAll("table.long").forEach(function (table) {
    var count = table.tBodies[0].rows.length;
    if (count <= 24) return;
    var button = document.createElement("button"), line = document.createElement("p");
    function show(short) {
      table.classList.toggle("short", short);
      button.textContent = short ? "Show all " + count : "Show the first 20";
      button.setAttribute("aria-expanded", String(!short));
    }
    button.type = "button";
    button.addEventListener("click", function () { show(!table.classList.contains("short")); });
    line.className = "rest";
    line.appendChild(button);
    table.parentNode.insertAdjacentElement("afterend", line);
    show(true);
  });

  var theme = document.getElementById("theme"), root = document.documentElement;
  var themes = ["system", "light", "dark"];
  theme.hidden = false;
  theme.addEventListener("click", function () {
    var next = themes[(themes.indexOf(root.getAttribute("data-theme") || "system") + 1) % themes.length];
    if (next === "system") root.removeAttribute("data-theme"); else root.setAttribute("data-theme", next);
    theme.textContent = "Theme: " + next;
  });
})();
