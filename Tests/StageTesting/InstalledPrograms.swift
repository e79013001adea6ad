import FoundationEssentials
package import SystemPackage

/// A directory of programs that only root may change, from '/' on, like that of an installed package.
///
/// The daemon launches no other programs. The directory is removed with the last reference. Needs root.
package final class InstalledPrograms: Sendable {
    /// The directory.
    package let path: FilePath

    /// Makes the directory, which every user may enter.
    package init() throws {
        path = FilePath("/var/lib/stagepack-tests.\(UInt64.random(in: 0 ... .max))")
        try FileManager.default.createDirectory(
            atPath: path.string,
            withIntermediateDirectories: false,
            attributes: [.posixPermissions: 0o755]
        )
    }

    deinit { try? FileManager.default.removeItem(atPath: path.string) }

    /// Copies a program that is not shipped into the directory, under its own name or another.
    ///
    /// - Throws: An issue of the test if the program is not built, ``DaemonProcess/Failure`` if it cannot be copied.
    package func install(
        _ program: FilePath.Component,
        as name: FilePath.Component? = nil
    ) throws {
        let source = try BuiltProgram.path(ofTestProgram: program)
        try ProgramFile.copy(from: source, to: path.appending(name ?? program))
    }
}
