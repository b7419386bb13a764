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
  const old = [...from.childNodes];
  const fresh = [...to.childNodes];
  fresh.forEach((node, place) => {
    const before = old[place];
    if (before === undefined) from.appendChild(node);
    else if (before.nodeType !== node.nodeType || before.nodeName !== node.nodeName) before.replaceWith(node);
    else if (node.nodeType === Node.ELEMENT_NODE) morph(before, node);
    else if (before.nodeValue !== node.nodeValue) before.nodeValue = node.nodeValue;
  });
  old.slice(fresh.length).forEach((node) => node.remove());
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
