// Markup that the server replaces as a whole and the browser changes in place, so that focus,
// selection and scrolling stay. Clicks on [data-action] are reported; ages are counted here.

function morph(from, to) {
  if (from.isEqualNode(to)) return;
  for (const { name } of [...from.attributes]) {
    if (!to.hasAttribute(name) && !(from.tagName === "DETAILS" && name === "open")) from.removeAttribute(name);
  }
  for (const { name, value } of [...to.attributes]) {
    if (from.getAttribute(name) !== value) from.setAttribute(name, value);
  }
  if (from.dataset?.since !== undefined) return;
  const fresh = [...to.childNodes];
  const keys = new Set(fresh.map(keyOf));
  const keyed = new Map();
  for (const node of [...from.childNodes]) {
    const key = keyOf(node);
    if (key === undefined) continue;
    if (keys.has(key)) keyed.set(key, node);
    else node.remove();
  }
  let at = from.firstChild;
  for (const node of fresh) {
    const key = keyOf(node);
    const same = key === undefined ? at : keyed.get(key);
    if (!same || same.nodeName !== node.nodeName || keyOf(same) !== key) {
      from.insertBefore(node, at);
      continue;
    }
    if (same === at) at = at.nextSibling;
    else from.insertBefore(same, at);
    if (node.nodeType === Node.ELEMENT_NODE) morph(same, node);
    else if (same.nodeValue !== node.nodeValue) same.nodeValue = node.nodeValue;
  }
  while (at) {
    const next = at.nextSibling;
    at.remove();
    at = next;
  }
}

// What a part is about. A part without a key is whatever is at its place.
function keyOf(node) {
  return node.dataset?.key;
}

function age(seconds) {
  const s = Math.max(0, Math.round(seconds));
  if (s < 60) return `${s} s`;
  if (s < 3600) return `${Math.floor(s / 60)} min`;
  if (s < 86400) return `${Math.floor(s / 3600)} h ${Math.floor((s % 3600) / 60)} min`;
  return `${Math.floor(s / 86400)} d ${Math.floor((s % 86400) / 3600)} h`;
}

export default {
  template: "<div></div>",
  props: { html: String },
  mounted() {
    this.$el.innerHTML = this.html;
    this.tick();
    this.timer = setInterval(() => this.tick(), 1000);
    this.$el.addEventListener("click", (event) => {
      const source = event.target.closest("[data-action]");
      if (!source || !this.$el.contains(source)) return;
      event.preventDefault();
      this.$emit("act", { ...source.dataset });
    });
  },
  beforeUnmount() {
    clearInterval(this.timer);
  },
  methods: {
    show() {
      const fresh = document.createElement("div");
      fresh.innerHTML = this.html;
      [...this.$el.attributes].forEach(({ name, value }) => fresh.setAttribute(name, value));
      const follows = this.$el.querySelector("[data-follow]");
      const atEnd = follows && follows.scrollHeight - follows.scrollTop - follows.clientHeight < 40;
      morph(this.$el, fresh);
      const after = this.$el.querySelector("[data-follow]");
      if (after && atEnd) after.scrollTop = after.scrollHeight;
      this.tick();
    },
    tick() {
      for (const each of this.$el.querySelectorAll("[data-since]")) {
        const at = Date.parse(each.dataset.since);
        const text = age((Date.now() - at) / 1000) + (each.dataset.ago !== undefined ? " ago" : "");
        if (each.textContent !== text) each.textContent = text;
        if (!each.title) each.title = new Date(at).toLocaleString();
      }
    },
  },
};
