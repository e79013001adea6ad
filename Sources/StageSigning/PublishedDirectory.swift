import StageModel
import StageSystem
package import SystemPackage

/// A directory that a web server publishes: the directory of a manifest, with its metadata and everything
/// below it.
package struct PublishedDirectory: Equatable, Sendable {
    /// The path without symbolic links.
    package let path: FilePath

    /// The directory of a manifest; `nil` if there is no such directory.
    package init?(ofManifest manifest: FilePath) {
        // If the manifest is a link, the metadata is beside the file that it points to.
        let file = manifest.resolved ?? manifest
        guard let path = file.fromRoot.removingLastComponent().resolved else { return nil }
        self.path = path
    }

    /// Finds the nearest parent directory with root metadata of an existing or future file; `nil` if there is
    /// none.
    package init?(around file: FilePath) {
        guard var path = file.fromRoot.removingLastComponent().resolved else { return nil }
        while !FileStatus.exists(path.appending("metadata/1.root.json")) {
            guard path.lastComponent != nil else { return nil }
            path.removeLastComponent()
        }
        self.path = path
    }

    /// Returns whether a server of the directory can serve a file: because it is below the directory, or
    /// because its path leads through a symbolic link there.
    package func contains(_ file: FilePath) -> Bool {
        let file = file.fromRoot
        if let resolved = file.resolved, resolved.starts(with: path) { return true }
        var name: FilePath = "/"
        for (index, component) in file.components.enumerated() {
            let folder = name.resolved ?? name
            name.append(component)
            guard component.kind == .regular, folder.starts(with: path) else { continue }
            let isLink = name.resolved != folder.appending(component)
            if index == file.components.count - 1 || isLink { return true }
        }
        return false
    }
}

extension FilePath {
    /// The absolute path with its `..` components, which the system resolves: after a link, `..` differs from
    /// the textual parent.
    fileprivate var fromRoot: FilePath {
        isRelative ? (FilePath(".").resolved ?? "/").pushing(self) : self
    }
}
