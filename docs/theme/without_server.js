// A page that is opened as a file may neither fetch the index of the search nor start a worker: the
// index is here, and the worker runs in a frame.
if (location.protocol === "file:") {
  window.__search = { index: Promise.resolve(INDEX) };
  window.Worker = class extends EventTarget {
    constructor(url) {
      super();
      this.listener = new Promise((resolve) => {
        window.__workerListens = resolve;
      });
      window.__workerSays = (data) => this.dispatchEvent(new MessageEvent("message", { data }));
      const frame = document.createElement("iframe");
      frame.hidden = true;
      document.body.append(frame);
      const inside = frame.contentDocument;
      inside.open();
      inside.write(
        "<script>self.addEventListener = (type, listener) => parent.__workerListens(listener);" +
          "self.postMessage = (data) => parent.__workerSays(data);</script>" +
          `<script src="${url}"></script>`,
      );
      inside.close();
    }
    postMessage(data) {
      this.listener.then((listener) => listener({ data }));
    }
  };
}
