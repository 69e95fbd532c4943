// What only makes the pages quicker to use: without it a button sends the form.
for (const form of document.querySelectorAll("form[data-slider]")) {
  const range = form.querySelector("input[type=range]");
  const output = form.querySelector("output");
  range.addEventListener("input", () => { output.value = range.value; });
  range.addEventListener("change", () => { form.requestSubmit(); });
}
