// Functions shared by the views of the page: navigation, announcements, and the permission to change jobs.

import { Viewer } from "./live";

export interface View extends Viewer {
  readonly root: HTMLElement;
  readonly title: string;
  close(): void;
}

export interface App {
  readonly canWrite: boolean;
  go(path: string): void;
  // Announces TEXT to screen readers.
  announce(text: string): void;
  // Views call this when their title, or the data for it, has changed.
  changed(): void;
}
