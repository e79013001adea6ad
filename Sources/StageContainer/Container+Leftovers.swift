public import StageModel
import StageSystem
import SystemPackage

extension Container {
    /// Removes leftovers of dead processes: temporary files, and staging areas and downloads that no later run
    /// resumes.
    ///
    /// Safe at any time: running processes lock their areas and downloads, and if another process runs this,
    /// abandoned areas are left to it. Continues after entries that cannot be removed (``Removal/failure``).
    ///
    /// - Parameters:
    ///   - now: The time, in seconds since 1970.
    ///   - offered: The content that manifests offer; `nil` if it is unknown, which keeps all resumable content.
    /// - Returns: The counts.
    public func removeLeftovers(now: Int64, offering offered: OfferedContent?) -> Removal {
        var removal = Removal()
        removeUnneeded(besides: offered?.missing, now: now, countingIn: &removal)
        removal.attempt { removal throws(FileError) in
            let pins = try root.directory(FilePath(ContainerLayout.pins))
            let others = [pins].compactMap(\.self) + (try trustDirectories())
            for directory in [root, packs, manifests, histories] + others {
                for entry in try directory.entries() {
                    removal.attempt { removal throws(FileError) in
                        guard try isStale(entry.name, in: directory, now: now) else { return }
                        if try directory.removeTree(entry.name) { removal.leftovers += 1 }
                    }
                }
            }
        }
        removal.attempt { removal throws(FileError) in
            try removeFoldersOfExtensions(now: now, countingIn: &removal)
        }
        return removal
    }

    /// Removes folders of extensions that are a day old: an extension runs for minutes at most.
    private func removeFoldersOfExtensions(
        now: Int64,
        countingIn removal: inout Removal
    ) throws(FileError) {
        guard let extensions = try root.directory(FilePath(ContainerLayout.extensions)) else {
            return
        }
        for entry in try extensions.entries() {
            removal.attempt { removal throws(FileError) in
                // The removal of a folder with the prefix was interrupted.
                guard let status = try extensions.status(entry.path),
                    entry.path.string.hasPrefix(ContainerLayout.removedPrefix)
                        || status.modified < now - 86400
                else { return }
                try extensions.removeTree(entry.name)
                removal.leftovers += 1
            }
        }
    }

    /// Returns the directories of signed metadata.
    private func trustDirectories() throws(FileError) -> [Directory] {
        guard let trust = try root.directory(FilePath(ContainerLayout.trust)) else { return [] }
        var found = [trust]
        for entry in try trust.entries() where entry.kind == .directory {
            guard let directory = try trust.directory(entry.path) else { continue }
            found.append(directory)
            let roots = try directory.directory(FilePath(ContainerLayout.roots))
            found += [roots].compactMap(\.self)
        }
        return found
    }

    /// Removes what no later run resumes: staging areas and downloads of dead processes whose content no
    /// manifest of the container offers, or which is staged by now.
    ///
    /// Lists two directories that are usually empty. Keeps downloads if a manifest cannot be read.
    ///
    /// - Parameters:
    ///   - now: The time, in seconds since 1970.
    ///   - keepingOffered: Pass `true` to keep the content of staged packs, too, with which an interrupted repair
    ///     resumes.
    ///   - manifest: A manifest that the container will have, and does not have yet.
    /// - Returns: The counts, with the first error of a file that cannot be deleted.
    /// - Throws: ``ContainerError`` if the container cannot be read.
    public func removeRemains(
        now: Int64,
        keepingOffered: Bool,
        after manifest: Manifest? = nil
    ) throws(ContainerError) -> Removal {
        let hasRemains = try ContainerError.wrapping { () throws(FileError) in
            if try !staging.entries().isEmpty { return true }
            // Files of extensions are content of no pack.
            return try downloads.entries().contains {
                !$0.path.string.hasPrefix(ContainerLayout.fileDownloadPrefix)
            }
        }
        guard hasRemains else { return Removal() }
        var offered = try reader.offeredContent()
        if let manifest { try offered?.add(manifest.packs, in: reader) }
        let needed = keepingOffered ? offered?.all : offered?.missing
        var removal = Removal()
        removeUnneeded(besides: needed, now: now, countingIn: &removal)
        return removal
    }

    /// Removes staging areas and downloads of dead processes that a later run does not resume.
    ///
    /// - Parameters:
    ///   - needed: The digests of content to keep; `nil` keeps all.
    ///   - now: The time, in seconds since 1970, for the age of downloads that are kept for a week.
    ///   - removal: The counts to add to.
    private func removeUnneeded(
        besides needed: Set<String>?,
        now: Int64,
        countingIn removal: inout Removal
    ) {
        func isNeeded(_ name: FilePath.Component) -> Bool {
            needed?.contains(String(ContainerLayout.digestPart(of: name))) ?? true
        }
        removeAbandonedAreas(countingIn: &removal) { isResumable($0, isWanted: isNeeded) }
        removeDownloads(countingIn: &removal) { name in
            // No manifest names the files of extensions: these may be requested again.
            if name.string.hasPrefix(ContainerLayout.fileDownloadPrefix) {
                return .ifChangedAfter(now - 7 * 86400)
            }
            return isNeeded(name) ? .always : .never
        }
    }

    /// The time for which a download is kept.
    private enum Retention {
        case always
        /// While its last change is later than a time, in seconds since 1970.
        case ifChangedAfter(Int64)
        case never
    }

    /// Removes the staging areas that dead processes left of a pack.
    func removeAreas(of id: PackID) -> Removal {
        var removal = Removal()
        removeAbandonedAreas(countingIn: &removal) { name in
            let mark = name.string.split(separator: ".").last ?? ""
            return name.string != "\(id).\(mark)" || !isResumable(name) { _ in true }
        }
        return removal
    }

    /// Removes the downloads of a pack's offered versions, unless another pack needs them.
    ///
    /// Reads all stored manifests if there are downloads; removes nothing if one of them cannot be read.
    func removeDownloads(of id: PackID) throws(ContainerError) -> Removal {
        var removal = Removal()
        let isEmpty = try ContainerError.wrapping { () throws(FileError) in
            try downloads.entries().isEmpty
        }
        guard !isEmpty, let packs = try reader.manifestCatalogue()?.manifests.flatMap(\.packs)
        else {
            return removal
        }
        var own = OfferedContent()
        try own.add(packs.filter { $0.id == id }, in: reader)
        var others = OfferedContent()
        try others.add(packs.filter { $0.id != id }, in: reader)
        let unneeded = own.all.subtracting(others.missing)
        removeDownloads(countingIn: &removal) { name in
            unneeded.contains(String(ContainerLayout.digestPart(of: name))) ? .never : .always
        }
        return removal
    }

    /// Removes areas of dead processes, except those that `isWanted` accepts.
    private func removeAbandonedAreas(
        countingIn removal: inout Removal,
        isWanted: (FilePath.Component) -> Bool
    ) {
        removal.attempt { removal throws(FileError) in
            let creations = try lockFile(Self.creationLock, in: locks)
            guard try staging.entries().contains(where: { !isWanted($0.name) }) else { return }
            guard let alone = try FileLock.attempt(creations, mode: .exclusive) else { return }
            for entry in try staging.entries() where !isWanted(entry.name) {
                removal.attempt { removal throws(FileError) in
                    guard try isAbandoned(entry) else { return }
                    try staging.removeTree(entry.name)
                    removal.leftovers += 1
                }
            }
            _ = consume alone
        }
    }

    /// Removes downloads whose retention has ended and that no process is working on.
    private func removeDownloads(
        countingIn removal: inout Removal,
        retention: (FilePath.Component) -> Retention
    ) {
        removal.attempt { removal throws(FileError) in
            for entry in try downloads.entries() {
                removal.attempt { removal throws(FileError) in
                    try removeDownload(entry, after: retention(entry.name), countingIn: &removal)
                }
            }
        }
    }

    private func removeDownload(
        _ entry: DirectoryEntry,
        after retention: Retention,
        countingIn removal: inout Removal
    ) throws(FileError) {
        if case .always = retention { return }
        let base = FilePath.Component(String(ContainerLayout.digestPart(of: entry.name)))
        guard let base, let status = try downloads.status(entry.path) else { return }
        let isLock = entry.path.string.hasSuffix(".lock")
        if !isLock, case .ifChangedAfter(let time) = retention, status.modified > time { return }
        guard let lock = try attemptLock(ofDownload: base) else { return }
        defer { lock.end() }
        if !isLock, try downloads.removeTree(entry.name) { removal.downloads += 1 }
    }

    /// Returns whether the entry is a temporary file that a dead process left.
    ///
    /// A running process renames its temporary file within an hour: links of a publication wait for one sync of the file
    /// system.
    private func isStale(
        _ name: FilePath.Component,
        in directory: Directory,
        now: Int64
    ) throws(FileError) -> Bool {
        guard Directory.isTemporary(name),
            let status = try directory.status(FilePath(name))
        else { return false }
        return status.modified < now - 3600
    }

    /// Returns whether a later run can resume the area.
    private func isResumable(
        _ name: FilePath.Component,
        isWanted: (FilePath.Component) -> Bool
    ) -> Bool {
        let mark = name.string.split(separator: ".").last ?? ""
        // Areas with other names cannot be resumed.
        guard let digest = try? Digest(hexadecimal: String(mark)) else { return false }
        return isWanted(ContainerLayout.downloadName(of: digest))
    }

    /// Returns whether the area, or the generation being deleted, belongs to a dead process.
    ///
    /// Only an exclusive lock counts, since it requires write permission: a reader with a shared lock on the
    /// lease of a deleted generation must not keep the rest.
    private func isAbandoned(_ entry: DirectoryEntry) throws(FileError) -> Bool {
        guard entry.kind == .directory else { return true }
        let path = entry.path.appending(ContainerLayout.lease)
        guard let lease = try staging.leaseFile(path) else { return true }
        return try !FileLock.isHeldExclusively(on: lease)
    }
}
