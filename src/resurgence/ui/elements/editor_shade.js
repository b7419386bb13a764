// Editors are as dark as the page, also when that changes.

export default {
  template: "<span hidden></span>",
  props: { editors: Array, dark: String, light: String },
  async mounted() {
    await this.$nextTick();
    this.observer = new MutationObserver(() => this.apply());
    this.observer.observe(document.documentElement, { attributeFilter: ["data-theme"] });
    await this.apply();
  },
  beforeUnmount() {
    this.observer?.disconnect();
  },
  methods: {
    async apply() {
      const theme = document.documentElement.dataset.theme === "dark" ? this.dark : this.light;
      for (const id of this.editors) {
        const host = getElement(id);
        if (!host) continue;
        if (!host.editor) await host.editorPromise;
        await new Promise((resolve) => setTimeout(resolve));
        host.setTheme(theme);
      }
    },
  },
};
