public import StageModel
import StageSystem
public import SystemPackage

/// What a removal freed.
public struct Removal: Equatable, Sendable {
    /// The generations that are gone.
    public var generations = 0
    /// Staging areas and removed trees that dead processes left.
    public var leftovers = 0
    /// Part files that nothing will continue.
    public var downloads = 0
    /// The generations, and the versions with single files, that stay because somebody reads them.
    public var inUse = 0

    /// Creates the value of a removal that freed nothing.
    public init() {}

    /// Whether there is more room now.
    public var hasFreed: Bool { generations + leftovers + downloads > 0 }

    /// Counts another one in.
    public mutating func add(_ other: Removal) {
        generations += other.generations
        leftovers += other.leftovers
        downloads += other.downloads
        inUse += other.inUse
    }
}

extension Container {
    /// Removes a pack from sight, then its generations and single files, except those that somebody
    /// reads.
    ///
    /// Readers that hold a lease go on reading; what they hold is removed by a later ``sweep()``. A
    /// pin goes with the pack.
    public func remove(_ lock: PackLock) throws(ContainerError) -> Removal {
        try ContainerError.wrapping { () throws(FileError) in
            try packs.remove(lock.id.component)
            try packs.synchronize()
        }
        try removePin(of: lock.id)
        var removal = try removePartialContent(of: lock.id)
        removal.add(try removeObsoleteGenerations(lock, keeping: 0))
        return removal
    }

    /// Removes the generations of a pack that are neither current, nor read by anybody, nor kept.
    ///
    /// As many are kept as `keeping` says: the previous one, then the newest. A pin that holds nothing
    /// goes with the others.
    public func removeObsoleteGenerations(
        _ lock: PackLock,
        keeping: Int
    ) throws(ContainerError) -> Removal {
        let id = lock.id
        let current = try reader.currentGeneration(of: id)
        let previous = try reader.previousGeneration(of: id)
        var removal = Removal()
        var obsolete: [(place: (Int, Int64), name: GenerationName)] = []
        for name in try reader.generations(of: id) where name != current {
            // A damaged one counts as the oldest.
            let stagedAt = try reader.wholeRecord(of: name, id)?.stagedAt ?? 0
            obsolete.append(((name == previous ? 1 : 0, stagedAt), name))
        }
        obsolete.sort { $0.place > $1.place }
        for (_, name) in obsolete.dropFirst(keeping) {
            let isGone = try ContainerError.wrapping { () throws(FileError) in
                try removeGeneration(name, id)
            }
            if isGone { removal.generations += 1 } else { removal.inUse += 1 }
        }
        if current == nil, obsolete.count == removal.generations {
            try removeDirectory(ofGenerations: id)
        }
        if try reader.recordedPin(of: id) != nil, try reader.pin(of: id) == nil {
            try removePin(of: id)
        }
        return removal
    }

    /// Removes a generation that no link names once `unlink` has returned, and returns `false` if
    /// somebody reads it.
    private func removeGeneration(
        _ name: GenerationName,
        _ id: PackID,
        unlink: () throws(FileError) -> Void = {}
    ) throws(FileError) -> Bool {
        guard let directory = try generations.directory(FilePath(id.component)) else { return true }
        let path = FilePath(name.component).appending(ContainerLayout.lease)
        let lease = try FileLock.attempt(try directory.file(removingBehind: path), mode: .exclusive)
        guard let lease else { return false }
        try unlink()
        // Locked to the end, so that no sweep takes it for a dead process's.
        try removeLeased(name.component, in: directory, id.text)
        _ = consume lease
        return true
    }

    /// Removes a directory whose lease is held exclusively.
    ///
    /// Out of sight in one step, so that a crash leaves no half generation under its name. Where that cannot
    /// be, since overlayfs moves no directory of a lower layer, or a full disk has no block for another name, the
    /// record goes first: what has none is no
    /// generation to go back to. The lease goes last, so that the rest is gone when it can be had anew.
    func removeLeased(
        _ name: FilePath.Component,
        in directory: Directory,
        _ prefix: String
    ) throws(FileError) {
        let trash = try makeUniqueName(prefix)
        do throws(FileError) {
            try directory.rename(name, to: trash, in: staging, replacing: false)
            try staging.removeTree(trash)
        } catch {
            guard error.errno == .improperLink || error.isOutOfSpace,
                let here = try directory.directory(FilePath(name))
            else { throw error }
            try here.remove(ContainerLayout.packRecord)
            for entry in try here.entries() where entry.name != ContainerLayout.lease {
                try here.removeTree(entry.name)
            }
            try here.remove(ContainerLayout.lease)
            try directory.removeEmpty(name)
        }
    }

    /// Removes what dead processes left in `staging/`, and part files that `isWanted` does not name.
    ///
    /// Safe at any time: areas of living processes are locked, and a sweep that another process is
    /// making is left to it.
    public func sweep(
        now: Int64,
        isWanted: (FilePath.Component) -> Bool
    ) throws(ContainerError) -> Removal {
        try ContainerError.wrapping { () throws(FileError) in
            var removal = try removeAbandonedAreas(isWanted)
            try removeDownloads(now, isWanted, &removal)
            let pins = try root.directory(FilePath(ContainerLayout.pins))
            let others = [pins].compactMap(\.self) + (try trustDirectories())
            for directory in [root, packs, manifests, histories] + others {
                for entry in try directory.entries()
                where try isStale(entry.name, in: directory, now: now) {
                    if try directory.removeTree(entry.name) { removal.leftovers += 1 }
                }
            }
            if let extensions = try root.directory(FilePath(ContainerLayout.extensions)) {
                // An extension runs for minutes at most: what is a day old is nobody's, and so is what a run
                // did not finish removing.
                for entry in try extensions.entries() {
                    guard let status = try extensions.status(FilePath(entry.name)),
                        entry.name.string.hasPrefix(ContainerLayout.removedPrefix)
                            || status.modified < now - 86400
                    else { continue }
                    try extensions.removeTree(entry.name)
                    removal.leftovers += 1
                }
            }
            return removal
        }
    }

    /// The directories of signed metadata.
    private func trustDirectories() throws(FileError) -> [Directory] {
        guard let trust = try root.directory(FilePath(ContainerLayout.trust)) else { return [] }
        var found = [trust]
        for entry in try trust.entries() where entry.kind == .directory {
            guard let directory = try trust.directory(FilePath(entry.name)) else { continue }
            found.append(directory)
            let roots = try directory.directory(FilePath(ContainerLayout.roots))
            found += [roots].compactMap(\.self)
        }
        return found
    }

    /// Removes what killed processes left that no later run continues: areas that begin anew, and the
    /// archives of packs that are staged.
    ///
    /// Costs the listing of two directories that are empty as a rule; what the manifests of other
    /// applications want stays.
    public func removeRemains(of packs: [Pack]) throws(ContainerError) -> Removal {
        let staged = try stagedContent(of: packs)
        return try ContainerError.wrapping { () throws(FileError) in
            var removal = Removal()
            if try staging.entries().contains(where: { !isWantedArea($0.name) { _ in true } }) {
                removal = try removeAbandonedAreas { _ in true }
            }
            // The age of files of extensions does not matter: none of them is staged content.
            try removeDownloads(
                0,
                { !staged.contains(ContainerLayout.digestPart(of: $0)) },
                &removal
            )
            return removal
        }
    }

    /// The names of the downloads that belong to packs that are staged.
    private func stagedContent(of packs: [Pack]) throws(ContainerError) -> Set<Substring> {
        let names = try ContainerError.wrapping { () throws(FileError) -> Set<Substring> in
            Set(try downloads.entries().map { ContainerLayout.digestPart(of: $0.name) })
        }
        guard !names.isEmpty else { return [] }
        var staged: Set<Substring> = []
        for pack in packs {
            let wanted = pack.downloads.map { $0.description[...] }.filter(names.contains)
            guard !wanted.isEmpty, let current = try reader.currentGeneration(of: pack.id),
                current.holds(pack)
            else { continue }
            staged.formUnion(wanted)
        }
        return staged
    }

    /// Removes areas of dead processes, except those that a later run continues and `isWanted` names.
    private func removeAbandonedAreas(
        _ isWanted: (FilePath.Component) -> Bool
    ) throws(FileError) -> Removal {
        var removal = Removal()
        let births = try lockFile(Self.birthLock, in: locks)
        if let alone = try FileLock.attempt(births, mode: .exclusive) {
            for entry in try staging.entries() where !isWantedArea(entry.name, isWanted) {
                guard try isAbandoned(entry) else { continue }
                try staging.removeTree(entry.name)
                removal.leftovers += 1
            }
            _ = consume alone
        }
        return removal
    }

    /// Removes downloads that nobody wants and nobody is fetching.
    private func removeDownloads(
        _ now: Int64,
        _ isWanted: (FilePath.Component) -> Bool,
        _ removal: inout Removal
    ) throws(FileError) {
        for entry in try downloads.entries() where !isWanted(entry.name) {
            let base = FilePath.Component(String(ContainerLayout.digestPart(of: entry.name)))
            guard let base, let status = try downloads.status(FilePath(entry.name)) else {
                continue
            }
            let isLock = entry.name.string.hasSuffix(".lock")
            // No manifest names the files of extensions: a week is time enough to ask again.
            if !isLock, base.string.hasPrefix(ContainerLayout.fileDownloadPrefix),
                status.modified > now - 7 * 86400
            {
                continue
            }
            guard let lock = try attemptLock(ofDownload: base) else { continue }
            if !isLock, try downloads.removeTree(entry.name) {
                removal.downloads += 1
            }
            lock.end()
        }
    }

    /// Whether the file was to be put in place by a process that died.
    ///
    /// A living one does it at once: a file that is an hour old is nobody's.
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

    /// Whether the area is one that a later run goes on with.
    private func isWantedArea(
        _ name: FilePath.Component,
        _ isWanted: (FilePath.Component) -> Bool
    ) -> Bool {
        let mark = name.string.split(separator: ".").last ?? ""
        // Other names are of areas that begin anew.
        guard let digest = try? Digest(hexadecimal: String(mark)) else { return false }
        return isWanted(ContainerLayout.downloadName(of: digest))
    }

    /// Whether the area, or the generation on its way out, is a dead process's.
    ///
    /// Only the exclusive lock counts, which takes the right to write: a reader that keeps a lock on the
    /// lease of a generation that was moved here keeps nothing else.
    private func isAbandoned(_ entry: DirectoryEntry) throws(FileError) -> Bool {
        guard entry.kind == .directory else { return true }
        let path = FilePath(entry.name).appending(ContainerLayout.lease)
        guard let lease = try staging.leaseFile(path) else { return true }
        return try !FileLock.isHeldExclusively(on: lease)
    }

    /// Removes the directory of a pack's generations if it is empty.
    private func removeDirectory(ofGenerations id: PackID) throws(ContainerError) {
        try ContainerError.wrapping { () throws(FileError) in
            try generations.removeEmpty(id.component)
        }
    }
}

extension Container {
    /// Removes a generation to make room, unless somebody reads it, the pack is pinned to it, or it is
    /// not what it was when that was decided.
    ///
    /// The lease is taken before the link is removed, not after: a reader that comes in between is told
    /// that the pack is not staged, which is about to be so, and one that came before keeps the pack
    /// staged.
    ///
    /// - Parameters:
    ///   - generation: What goes.
    ///   - isCurrent: Whether it was the pack's current generation then.
    ///   - lock: The lock on the pack.
    /// - Returns: Whether it is gone.
    /// - Throws: ``ContainerError/file(_:)`` if the container cannot be changed.
    public func evict(
        _ generation: GenerationName,
        isCurrent: Bool,
        _ lock: PackLock
    ) throws(ContainerError) -> Bool {
        let id = lock.id
        guard (try reader.currentGeneration(of: id) == generation) == isCurrent else {
            return false
        }
        if isCurrent, try reader.pin(of: id) != nil { return false }
        let isGone = try ContainerError.wrapping { () throws(FileError) in
            try removeGeneration(generation, id) { () throws(FileError) in
                guard isCurrent else { return }
                try packs.remove(id.component)
                try packs.synchronize()
            }
        }
        if isGone, try reader.generations(of: id).isEmpty {
            try removePin(of: id)
            try removeDirectory(ofGenerations: id)
        }
        return isGone
    }
}

extension Directory {
    /// Removes a directory if it is empty.
    fileprivate func removeEmpty(_ name: FilePath.Component) throws(FileError) {
        do throws(FileError) {
            try removeDirectory(name)
        } catch {
            guard error.errno == .directoryNotEmpty else { throw error }
        }
    }
}
