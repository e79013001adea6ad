import StageModel
package import StageTrust
import SystemPackage

/// The tasks of a signing run.
package struct SigningTasks: Equatable, Sendable {
    /// Indicates whether the targets metadata is updated to the current manifest.
    package var takesManifest = false
    /// Indicates whether the supplied keys also sign a draft of root metadata.
    package var signsRoot = false
    /// Indicates whether snapshot and timestamp are renewed even if they are far from expiry.
    package var renewsAlways = false

    /// Creates tasks that renew metadata that is near expiry.
    package init() {}
}

/// Signs the metadata of a repository, and publishes the metadata that has enough signatures.
///
/// The caller must hold the manifest's lock. After a crash at any point, readers find either the old or the
/// new state; the next run continues.
package final class SigningRun {
    let files: RepositoryFiles
    let signers: [any MetadataSigner]
    let time: MetadataTime
    let manifest: [UInt8]
    /// The drafts to store at the end.
    var drafts: [SigningRole: SignedDocument] = [:]

    /// Creates a run at the reference time.
    package init(
        _ files: RepositoryFiles,
        manifest: [UInt8],
        signers: [any MetadataSigner],
        at time: MetadataTime
    ) {
        self.files = files
        self.manifest = manifest
        self.signers = signers
        self.time = time
    }

    /// Creates the draft of the first root, then signs all roles.
    ///
    /// - Throws: ``SigningError``; nothing is published and no draft is left then.
    package func initialize(_ content: RootContent) throws(SigningError) -> SigningReport {
        guard try !files.exists() else {
            throw .alreadyInitialized(path: files.metadataPath)
        }
        try content.check()
        let draft = SignedDocument(signed: content.tree(version: 1, signedAt: time))
        return try perform(.everything, published: nil, draft: root(draft))
    }

    /// Creates a draft of the next root, based on an earlier draft or else on the published root, then signs.
    package func rotate(
        _ change: (inout RootContent) throws(SigningError) -> Void
    ) throws(SigningError) -> SigningReport {
        let published = try publishedRoot()
        let earlier = try draftRoot(after: published)
        guard let base = earlier ?? published else { throw .noRoot(path: files.metadataPath) }
        var content = base.content
        try change(&content)
        try content.check()
        let version = (published?.document.version ?? 0) + 1
        let draft = SignedDocument(signed: content.tree(version: version, signedAt: time))
        var tasks = SigningTasks()
        tasks.signsRoot = true
        tasks.takesManifest = published == nil
        return try perform(tasks, published: published, draft: root(draft))
    }

    /// Signs and publishes the parts that `tasks` names, and those near expiry.
    ///
    /// Renews a published root near expiry also while a draft of the next one lacks signatures. The draft then
    /// restarts without signatures, after the renewed root.
    package func perform(_ tasks: SigningTasks) throws(SigningError) -> SigningReport {
        let published = try publishedRoot()
        var draft = try draftRoot(after: published)
        guard published != nil || draft != nil else { throw .noRoot(path: files.metadataPath) }
        var tasks = tasks
        try checkSigners(under: [published, draft].compactMap(\.self))
        if draft == nil, let published, renews(published) {
            let version = published.document.version + 1
            draft = try root(
                SignedDocument(signed: published.content.tree(version: version, signedAt: time))
            )
            tasks.signsRoot = true
        }
        if published == nil { tasks.takesManifest = true }
        var report = try perform(tasks, published: published, draft: draft)
        if let published, renews(published),
            try publishedRoot()?.document.version == published.document.version
        {
            let next = SigningRun(files, manifest: manifest, signers: signers, at: time)
            report.add(try next.renew(published, with: tasks))
        }
        return report
    }

    // MARK: All roles

    func perform(
        _ tasks: SigningTasks,
        published: RootDocument?,
        draft: RootDocument?
    ) throws(SigningError) -> SigningReport {
        var draft = draft
        if tasks.signsRoot, var document = draft?.document {
            try sign(&document, of: .root, under: [published, draft].compactMap(\.self))
            draft = try root(document)
        }
        drafts[.root] = draft?.document
        let plan = try plan(tasks, published: published, next: draft)
        if let plan {
            try publish(plan, published: published)
        }
        try storeDrafts(tasks, under: plan?.root ?? published)
        return try report(plan, published: published)
    }

    /// Returns the first plan with enough signatures: under the next root, else under the published one.
    private func plan(
        _ tasks: SigningTasks,
        published: RootDocument?,
        next: RootDocument?
    ) throws(SigningError) -> RepositoryPlan? {
        if let next, Self.isComplete(next, after: published),
            let plan = try plan(tasks, under: next, before: published)
        {
            return plan
        }
        guard let published else { return nil }
        return try plan(tasks, under: published, before: nil)
    }

    /// Returns whether clients of the published root accept the next one.
    static func isComplete(_ next: RootDocument, after published: RootDocument?) -> Bool {
        next.signatures(on: next.document, by: .root).isComplete
            && published?.signatures(on: next.document, by: .root).isComplete != false
    }

    /// Adds the signatures of the supplied keys that the roots list for a role.
    ///
    /// - Throws: ``SigningError/noSigner(role:expected:given:)`` if none of the keys signs root metadata, for
    ///   which signing was requested explicitly.
    private func sign(
        _ document: inout SignedDocument,
        of role: SigningRole,
        under roots: [RootDocument]
    ) throws(SigningError) {
        let expected = roots.flatMap { $0.content.roles[role]?.keys ?? [] }.map(\.id)
        var isKnown = false
        for signer in signers where expected.contains(signer.key.id) {
            isKnown = true
            // An unneeded signature would change the file's digest, which later roles have signed.
            let isWanted = roots.contains { root in
                let count = root.signatures(on: document, by: role)
                return count.missing.contains(signer.key.id) && (role == .root || !count.isComplete)
            }
            guard isWanted else { continue }
            try document.sign(with: signer)
            hasSigned = true
        }
        if !isKnown, role == .root {
            throw .noSigner(role: role, expected: expected.uniqued, given: signers.map(\.key.id))
        }
    }

    /// Returns the new metadata of the three other roles under a root, or `nil` if signatures are missing; it
    /// is in drafts then.
    ///
    /// Even without an option to sign the manifest, a draft of targets metadata that names the current
    /// manifest and has enough signatures is published if the other roles can be signed too.
    private func plan(
        _ tasks: SigningTasks,
        under root: RootDocument,
        before: RootDocument?
    ) throws(SigningError) -> RepositoryPlan? {
        var tasks = tasks
        if !tasks.takesManifest, try hasCompleteTargets(under: root) {
            tasks.takesManifest = true
            if let plan = try attempt(tasks, under: root, before: before) { return plan }
            tasks.takesManifest = false
        }
        return try attempt(tasks, under: root, before: before)
    }

    /// Returns whether a draft of targets metadata names the current manifest and has enough signatures.
    private func hasCompleteTargets(under root: RootDocument) throws(SigningError) -> Bool {
        let plan = RepositoryPlan(root: root)
        try plan.read(files)
        let wanted = SignedDocument(
            signed: plan.content(of: .targets, manifest: manifest, name: files.manifestName.string)
        )
        let draft = try draft(.targets, content: wanted.content, of: plan, under: root)
        return draft.map { root.signatures(on: $0, by: .targets).isComplete } ?? false
    }

    private func attempt(
        _ tasks: SigningTasks,
        under root: RootDocument,
        before: RootDocument?
    ) throws(SigningError) -> RepositoryPlan? {
        let plan = RepositoryPlan(root: root)
        try plan.read(files)
        for role in [SigningRole.targets, .snapshot, .timestamp] {
            let content = plan.content(
                of: role,
                manifest: tasks.takesManifest ? manifest : nil,
                name: files.manifestName.string
            )
            guard
                try prepare(
                    role,
                    content: content,
                    of: plan,
                    tasks: tasks,
                    under: root,
                    before: before
                )
            else { return nil }
        }
        return plan
    }

    /// Determines the metadata of one role; returns `false` if signatures are missing.
    private func prepare(
        _ role: SigningRole,
        content: JSONTree,
        of plan: RepositoryPlan,
        tasks: SigningTasks,
        under root: RootDocument,
        before: RootDocument?
    ) throws(SigningError) -> Bool {
        let wanted = SignedDocument(signed: content).content
        if let current = plan.current[role], current.content == wanted,
            root.signatures(on: current, by: role).isComplete,
            !renews(role, current: current, tasks: tasks, under: root)
        {
            plan.prepared[role] = current
            return true
        }
        var document = try draft(role, content: wanted, of: plan, under: root)
        if document == nil {
            document = SignedDocument(
                signed: content.versioned(
                    try plan.nextVersion(of: role, in: files),
                    expiry: root.content.periods.expiry(of: role, signedAt: time)
                )
            )
        }
        guard var document else { return false }
        try sign(&document, of: role, under: [root, before].compactMap(\.self))
        try keepDraft(document, of: role, after: plan.current[role], tasks: tasks)
        guard root.signatures(on: document, by: role).isComplete else {
            unsigned[role] = document
            return false
        }
        plan.prepared[role] = document
        plan.new.insert(role)
        return true
    }

    /// Keeps a document as a draft for the end of the run, unless an earlier attempt, or a run that signed
    /// the manifest, has created a draft with other content.
    private func keepDraft(
        _ document: SignedDocument,
        of role: SigningRole,
        after current: SignedDocument?,
        tasks: SigningTasks
    ) throws(SigningError) {
        guard !document.signatures.isEmpty else { return }
        if let earlier = drafts[role], earlier.message != document.message { return }
        if !tasks.takesManifest, let earlier = try files.draft(role),
            earlier.content != document.content, earlier.version > current?.version ?? 0
        {
            return
        }
        drafts[role] = document
    }

    /// Indicates whether a key signed in this run.
    private(set) var hasSigned = false

    /// Documents with too few signatures.
    private(set) var unsigned: [SigningRole: SignedDocument] = [:]

    private func renews(
        _ role: SigningRole,
        current: SignedDocument,
        tasks: SigningTasks,
        under root: RootDocument
    ) -> Bool {
        if tasks.renewsAlways, role != .targets { return true }
        return root.content.periods.isDue(role, expiry: current.expiry, at: time)
            && hasEnoughSigners(for: role, under: root)
    }

    /// Returns a draft that has the content and is far from expiry.
    private func draft(
        _ role: SigningRole,
        content: [UInt8],
        of plan: RepositoryPlan,
        under root: RootDocument
    ) throws(SigningError) -> SignedDocument? {
        // A draft of an earlier attempt, with its signatures, takes precedence over the one on disk.
        var found = drafts[role]
        if found?.content != content { found = try files.draft(role) }
        guard let draft = found, draft.content == content,
            draft.version > plan.current[role]?.version ?? 0,
            !root.content.periods.isDue(role, expiry: draft.expiry, at: time)
        else { return nil }
        return draft
    }
}

extension SigningTasks {
    /// The tasks for the first metadata of a repository.
    static var everything: SigningTasks {
        var tasks = SigningTasks()
        tasks.takesManifest = true
        tasks.signsRoot = true
        return tasks
    }
}
