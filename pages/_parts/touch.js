// A finger does not hover, but a chart selects what was last hovered: without this a tap picks the point that was tapped before.
// So the place of a touch is told to the chart as a movement of the pointer, before the chart sees the touch itself.
export default function () {
  if (window.__nuscopeTouch) return;
  window.__nuscopeTouch = true;
  const tell = (event) => {
    const touch = event.touches.length === 1 ? event.touches[0] : null;
    if (!touch || !(event.target instanceof Element) || !event.target.closest(".js-plotly-plot")) return;
    const place = { clientX: touch.clientX, clientY: touch.clientY, bubbles: true, cancelable: true, view: window };
    event.target.dispatchEvent(new MouseEvent("mouseover", place));
    event.target.dispatchEvent(new MouseEvent("mousemove", place));
  };
  document.addEventListener("touchstart", tell, { capture: true, passive: true });
}
