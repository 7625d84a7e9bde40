// What the views of the page share: where to go, what to say, who may change something.

import { Viewer } from "./live";

export interface View extends Viewer {
  readonly root: HTMLElement;
  readonly title: string;
  close(): void;
}

export interface App {
  readonly canWrite: boolean;
  go(path: string): void;
  // Says it to those who cannot see it.
  tell(text: string): void;
  // After a view's title or wants changed.
  changed(): void;
}
