package import StageSystem
package import SystemPackage

/// A file that a daemon reports as a finished download, although it must not give it to a client.
package enum StagedBait: String, CaseIterable, Sendable {
    /// A file in another directory.
    case elsewhere
    /// A file in another directory, by a path through the daemon's own.
    case outByDots
    /// A symbolic link in the daemon's directory.
    case link
    /// A file of the daemon's directory that has another hard link elsewhere.
    case secondName
    /// No file.
    case directory
    /// A file in a directory that all users may write.
    case openDirectory

    /// Creates the files `staged/1` and `precious` in a directory as the daemon would, and returns the path that it
    /// reports.
    package func lay(in directory: Directory) throws -> FilePath {
        let staged = try directory.makeDirectory("staged")
        try directory.write(Self.content, to: "precious", durably: false)
        let precious = directory.path.appending("precious")
        let path = staged.path.appending("1")
        switch self {
        case .elsewhere: return precious
        case .outByDots: return staged.path.appending("../precious")
        case .link: try staged.createLink("1", to: precious.string)
        case .secondName: try staged.createHardLink("1", to: "precious", in: directory)
        case .directory: _ = try staged.makeDirectory("1")
        case .openDirectory:
            try staged.write(Self.content, to: "1", durably: false)
            try directory.changeMode(
                of: "staged",
                to: [.ownerReadWriteExecute, .groupReadWriteExecute, .otherReadWriteExecute]
            )
        }
        return path
    }

    /// Returns whether all files are unchanged in their places.
    package func isWhole(in directory: Directory) throws -> Bool {
        let content = try File.open(reading: directory.path.appending("precious"))
            .readAll(limit: Self.content.count + 1)
        let names = try Directory.open(directory.path.appending("staged")).entries()
            .map(\.path.string)
        let isInside = self != .elsewhere && self != .outByDots
        return content == Self.content && names == (isInside ? ["1"] : [])
    }

    /// The content that must not be lost.
    package static let content = [UInt8](repeating: 7, count: 1000)
}
