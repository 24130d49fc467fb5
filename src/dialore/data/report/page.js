(() => {
  "use strict";
  // The figures of one metric at a time.
  const metric = document.getElementById("metric");
  if (!metric) return;
  const pick = () => {
    for (const part of document.querySelectorAll(".figures")) part.hidden = part.dataset.metric !== metric.value;
  };
  metric.addEventListener("change", pick);
  pick();
})();
