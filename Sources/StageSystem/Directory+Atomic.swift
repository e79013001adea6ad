public import SystemPackage

extension Directory {
    /// Puts a file with this content at `name`, in one step: a reader finds the old file or the new
    /// one, whole.
    ///
    /// A write that is made `durably` waits until the file is on disk before it is put in place, so
    /// that a power cut cannot leave it empty. The file has the permission bits `mode`, or, for `nil`,
    /// those that the umask leaves of `0644`. Its time of change is later than the second `time`, in
    /// seconds since 1970, if one is given, even if that lies ahead of the clock.
    public func write(
        _ content: [UInt8],
        to name: FilePath.Component,
        durably: Bool,
        exactly mode: FilePermissions? = nil,
        modifiedAfter time: Int64? = nil
    ) throws(FileError) {
        let temporary = try temporaryName(for: name)
        do throws(FileError) {
            let file = try file(creating: FilePath(temporary), permissions: mode ?? .file)
            if let mode { try file.settle(mode) }
            try file.write(content.span, at: 0)
            if let time, try file.status().modified <= time { try file.setModified(time + 1) }
            if durably { try file.synchronize() }
            try rename(temporary, to: name, in: self)
            if durably { try synchronize() }
        } catch {
            // The error that counts is the first one; a file left over is swept later.
            _ = try? remove(temporary)
            throw error
        }
    }

    /// Puts a symbolic link to `target` at `name`, in one step, whatever stood there.
    public func replaceLink(
        _ name: FilePath.Component,
        to target: String
    ) throws(FileError) {
        let temporary = try temporaryName(for: name)
        try createLink(FilePath(temporary), to: target)
        do throws(FileError) {
            try rename(temporary, to: name, in: self)
        } catch {
            // The error that counts is the first one; a link left over is swept later.
            _ = try? remove(temporary)
            throw error
        }
    }

    /// A name beside `name` that nothing else has, recognised by ``isTemporary(_:)``.
    public func temporaryName(
        for name: FilePath.Component
    ) throws(FileError) -> FilePath.Component {
        let mark = String(UInt64.random(in: 0...UInt64.max), radix: 36)
        guard let temporary = FilePath.Component(".\(name.string).\(mark).tmp") else {
            throw FileError("create", path.appending(name), .invalidArgument)
        }
        return temporary
    }

    /// Whether `name` was made for a file that was about to be put in place.
    public static func isTemporary(_ name: FilePath.Component) -> Bool {
        name.string.hasPrefix(".") && name.string.hasSuffix(".tmp")
    }
}
