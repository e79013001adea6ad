import Glibc
package import SystemPackage

extension FilePath {
    /// Creates a relative path of one component.
    package init(_ name: Component) {
        self.init(root: nil, [name])
    }

    /// The absolute path; a relative one is resolved against the working directory.
    package var absolute: FilePath {
        guard isRelative, let working = unsafe getcwd(nil, 0) else { return self }
        defer { unsafe free(working) }
        return unsafe FilePath(platformString: working).pushing(self).lexicallyNormalized()
    }
}
